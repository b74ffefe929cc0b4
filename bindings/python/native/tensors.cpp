// Converts the arguments of named tensors, and checks that arrays are as long as the call says. See tensors.hpp.
#include "bindings/python/native/tensors.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "bindings/python/native/arguments.hpp"
#include "bindings/python/native/kept.hpp"
#include "bindings/python/native/world.hpp"

namespace tutti::python {
namespace {

constexpr const char* kSubmit = "submit";
using SharedQueue = std::shared_ptr<OpenTensorQueue>;

template <class Exception>
[[noreturn]] void refuse(const std::string& why) {
  throw Exception(std::string(kSubmit) + ": " + why);
}

// The arguments of one submit(), before any is converted.
struct Given {
  py::handle input, output, op, splits, shape, allocate, dtype, stream, wire_dtype;
};

// One call in its C++ form, with the objects that it refers to.
class Submission {
 public:
  // `call` has the arguments that need no conversion.
  Submission(const OpenTensorQueue& queue, const Given& given, TensorCall call)
      : given_(given), call_(std::move(call)), arguments_(queue, kSubmit, given.stream) {
    if (!given.dtype.is_none()) seen_as_ = dtype_of_name(given.dtype.cast<std::string>());
    take_arrays();
    take_shape();
    if (!given.wire_dtype.is_none())
      call_.wire_dtype = dtype_of_name(given.wire_dtype.cast<std::string>(), "wire_dtype");
    splits_ = counts_of(given.splits, kSubmit, "splits");
    call_.splits = splits_;
    call_.op = reduction_of(given.op, kSubmit);
    const CallOptions options = arguments_.options(call_.will_wait);
    call_.memory = options.memory == Memory::device ? Memory::device : Memory::host;
    call_.cuda_stream = options.cuda_stream;
  }

  const TensorCall& call() const { return call_; }
  Buffers& buffers() { return buffers_; }
  py::handle result() const { return result_; }

 private:
  bool needs_rows() const {
    return call_.collective == Collective::allgather || call_.collective == Collective::alltoall ||
           call_.collective == Collective::reduce_scatter;
  }
  bool may_be_in_place() const {
    return call_.collective == Collective::allreduce || call_.collective == Collective::broadcast;
  }

  void take_arrays() {
    if (call_.collective == Collective::barrier) {
      if (!given_.input.is_none() || !given_.output.is_none())
        refuse<py::type_error>("a barrier has no arrays; expected None");
      return;
    }
    if (given_.input.is_none()) refuse<py::type_error>("input: expected an array, not None");
    if (may_be_in_place() && given_.output.is_none()) {
      buffers_.output = arguments_.array(given_.input, "input", Use::written);
      see_as_given(buffers_.output, "input");
      call_.input = buffers_.output.data();
      result_ = given_.input;
    } else {
      buffers_ = arguments_.buffers(given_.input, given_.output);
      see_as_given(buffers_.input, "input");
      if (!buffers_.output.is_empty()) see_as_given(buffers_.output, "output");
      call_.input = buffers_.input.data();
      result_ = given_.output;
    }
    call_.output = buffers_.output.data();
    call_.dtype = main_array().dtype();
    if (may_be_in_place() && !buffers_.input.is_empty())
      expect_count(kSubmit, "output", buffers_.output.count(), buffers_.input.count());
  }

  // The one that the shape is of.
  const Array& main_array() const { return buffers_.input.is_empty() ? buffers_.output : buffers_.input; }

  void see_as_given(Array& array, const char* name) {
    if (seen_as_ && !array.see_as(*seen_as_)) {
      refuse<py::value_error>(std::string(name) + ": its bytes are no whole number of elements of " +
                              dtype_name(*seen_as_));
    }
  }

  void take_shape() {
    if (call_.collective == Collective::barrier) return;
    shape_ =
        given_.shape.is_none() ? main_array().shape(given_.input) : counts_of(given_.shape, kSubmit, "shape");
    const auto count = std::accumulate(shape_.begin(), shape_.end(), std::uint64_t{1}, std::multiplies<>());
    if (count != main_array().count()) {
      refuse<py::value_error>("shape: " + std::to_string(count) + " elements, and input has " +
                              std::to_string(main_array().count()));
    }
    if (!needs_rows()) {
      if (!given_.allocate.is_none())
        refuse<py::value_error>(std::string("allocate: the output of ") + name_of(call_.collective) +
                                " is as long as its input; pass it as output");
    } else {
      if (shape_.empty()) shape_ = {1};  // one row
      take_output_by_rows();
    }
    call_.shape = shape_;
  }

  void take_output_by_rows() {
    const auto row_count =
        std::accumulate(shape_.begin() + 1, shape_.end(), std::uint64_t{1}, std::multiplies<>());
    if (given_.allocate.is_none() == given_.output.is_none()) {
      refuse<py::value_error>(std::string(name_of(call_.collective)) +
                              " needs an output, or a function for allocate that returns it once the rows "
                              "of all ranks are known; pass one of them");
    }
    if (given_.allocate.is_none()) {
      call_.allocate = [memory = call_.output, count = buffers_.output.count(),
                        row_count](std::span<const std::uint64_t> rows) {
        expect_rows("output", count, rows, row_count);
        return memory;
      };
      return;
    }
    if (PyCallable_Check(given_.allocate.ptr()) == 0) refuse<py::type_error>("allocate: it cannot be called");
    buffers_.allocation = keep(Allocation(
        py::reinterpret_borrow<py::object>(given_.allocate),
        {call_.dtype, seen_as_, row_count, buffers_.input.is_on_gpu(), arguments_.given_stream()}));
    call_.allocate = [allocation = buffers_.allocation](std::span<const std::uint64_t> rows) {
      return allocation->allocate(rows);
    };
  }

  Given given_;
  TensorCall call_;
  CallArguments arguments_;
  Buffers buffers_;
  std::optional<Dtype> seen_as_;
  std::vector<std::uint64_t> shape_, splits_;
  py::handle result_ = Py_None;
};

// Another thread, or a callback, may close it meanwhile. The end of a queue waits for threads that may need the GIL.
struct Borrowed {
  explicit Borrowed(TensorQueue of) : queue(std::move(of)) {}
  ~Borrowed() {
    const WithoutGil without;
    queue = {};
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  TensorQueue queue;
};

std::unique_ptr<PendingWork> submit(const SharedQueue& queue, const std::string& name, py::handle input,
                                    py::handle output, const std::string& collective, py::handle op, int root,
                                    double prescale, double postscale, py::handle splits, py::handle shape,
                                    int priority, const std::string& batch, std::uint32_t batch_size,
                                    bool will_wait, py::handle allocate, py::handle dtype, py::handle stream,
                                    py::handle wire_dtype, std::optional<bool> error_feedback) {
  return guarded(*queue, kSubmit, [&] {
    TensorCall call;
    call.collective = collective_of(collective, kSubmit);
    call.root = root;
    call.prescale = prescale;
    call.postscale = postscale;
    call.priority = priority;
    call.batch = batch;
    call.batch_size = batch_size;
    call.will_wait = will_wait;
    call.error_feedback = error_feedback;
    Submission submission(*queue, {input, output, op, splits, shape, allocate, dtype, stream, wire_dtype},
                          call);
    const Borrowed handle{queue->queue()};
    return start_only(queue, name_of(call.collective), std::move(submission.buffers()), submission.result(),
                      [&](const CommGroup&) { return handle.queue.submit(name, submission.call()); });
  });
}

// The arrays that `function` makes, as join() wants them.
ZerosOnDevice zeros_by(py::handle function) {
  if (function.is_none()) return {};
  if (PyCallable_Check(function.ptr()) == 0) throw py::type_error("join: zeros: it cannot be called");
  return [held = keep(py::reinterpret_borrow<py::object>(function))](std::uint64_t bytes) {
    return ask_program("zeros", nullptr, [&] {
      py::object made = (*held)(bytes);
      Array array = Array::of(made, "join", "zeros", Use::written, std::nullopt);
      const std::uint64_t got = array.count() * array.element_bytes();
      if (!array.is_on_gpu() || got < bytes) {
        throw Error(StatusCode::invalid_argument, -1,
                    "join: zeros: " + std::to_string(got) + " bytes " +
                        (array.is_on_gpu() ? "on a GPU" : "in main memory") + ", expected " +
                        std::to_string(bytes) + " on a GPU");
      }
      const auto kept =
          keep(std::pair(std::move(made), std::move(array)));  // an array need not own its memory
      return std::shared_ptr<void>(kept, kept->second.data());
    });
  };
}

std::unique_ptr<PendingWork> join(const SharedQueue& queue, py::handle zeros) {
  return guarded(*queue, "join", [&] {
    const Borrowed handle{queue->queue()};
    ZerosOnDevice given = zeros_by(zeros);
    return start_only(queue, "join", {}, py::none(),
                      [&](const CommGroup&) { return handle.queue.join(std::move(given)); });
  });
}

void start_timeline(const SharedQueue& queue, const py::object& path, bool mark_cycles) {
  const auto text = py::module_::import("os").attr("fsdecode")(path).cast<std::string>();
  guarded(*queue, "start_timeline", [&] {
    const Borrowed handle{queue->queue()};
    const WithoutGil without;
    handle.queue.start_timeline(text, mark_cycles);
  });
}

void stop_timeline(const SharedQueue& queue) {
  guarded(*queue, "stop_timeline", [&] {
    const Borrowed handle{queue->queue()};
    const WithoutGil without;
    handle.queue.stop_timeline();
  });
}

std::uintptr_t c_handle(const SharedQueue& queue) {
  return guarded(*queue, "c_handle",
                 [&] { return reinterpret_cast<std::uintptr_t>(queue->c_queue_handle()); });
}

SharedQueue make_queue(const std::optional<SharedGroup>& group) {
  const SharedGroup& of = group ? *group : world();
  return guarded(*of, "TensorQueue", [&] { return std::make_shared<OpenTensorQueue>(of->group()); });
}

TensorQueue open(const CommGroup& group) {
  const WithoutGil without;
  return TensorQueue(group);
}

}  // namespace

OpenTensorQueue::OpenTensorQueue(const CommGroup& group) : OpenGroup(group), queue_(open(group)) {}

OpenTensorQueue::~OpenTensorQueue() {
  OpenTensorQueue::close();
  const WithoutGil without;
  tutti_tensor_queue_close(&c_queue_handle_);
}

tutti_tensor_queue_t OpenTensorQueue::c_queue_handle() {
  if (c_queue_handle_ == nullptr) c_queue_handle_ = make_c_handle(queue_);
  return c_queue_handle_;
}

void OpenTensorQueue::abandon(Pending pending) {
  if (queue_.is_open()) return OpenGroup::abandon(std::move(pending));
  release_when_complete(std::move(pending));
}

// In a callback the queue ends later, on another thread.
void OpenTensorQueue::close() {
  {
    TensorQueue last = std::exchange(queue_, {});
    const WithoutGil without;
    last.close();
  }
  for (Pending& pending : take_abandoned()) release_when_complete(std::move(pending));
  OpenGroup::close();
}

void define_tensors(py::module_& module) {
  py::class_<OpenTensorQueue, SharedQueue> queue(
      module, "TensorQueue",
      "Collectives on tensors with names, whose order the ranks need not agree on. Each is communicated once "
      "all ranks of the group (None: the world) have submitted it; small ones share an operation. Every rank "
      "makes the queue; any thread uses it.");
  queue.def(py::init(&make_queue), py::arg("group") = py::none());
  queue.def(
      "submit", &submit,
      "Submit a tensor by name and return its Work. collective: allreduce, broadcast, allgather, "
      "reduce_scatter, alltoall or barrier (input None). output None: in place, for allreduce and broadcast. "
      "allocate(rows), for allgather, alltoall and reduce_scatter, returns the output, which result() of the "
      "Work gives: called on another thread once all ranks are ready, with the rows from each rank "
      "(reduce_scatter: of this rank). It must not wait; an exception in it fails the operation on this "
      "rank. prescale and postscale: factors of each input and of the result. splits: rows for each rank, of "
      "alltoall. shape: else that of input. Tensors of one batch, of batch_size, are communicated together. "
      "dtype: the elements that the bytes of the arrays are. will_wait: the caller waits at once. "
      "wire_dtype: of messages "
      "between nodes, for sums and averages of float32; None: as TUTTI_WIRE_DTYPE says. error_feedback: what "
      "rounding to it lost is added at the "
      "tensor's next step; None: as TUTTI_ERROR_FEEDBACK says.",
      py::arg("name"), py::arg("input"), py::arg("output") = py::none(), py::kw_only(),
      py::arg("collective") = "allreduce", py::arg("op") = "sum", py::arg("root") = 0,
      py::arg("prescale") = 1.0, py::arg("postscale") = 1.0, py::arg("splits") = py::none(),
      py::arg("shape") = py::none(), py::arg("priority") = 0, py::arg("batch") = "",
      py::arg("batch_size") = 0, py::arg("will_wait") = false, py::arg("allocate") = py::none(),
      py::arg("dtype") = py::none(), py::arg("stream") = py::none(), py::arg("wire_dtype") = py::none(),
      py::arg("error_feedback") = py::none());
  queue.def(
      "join", &join,
      "This rank has no more tensors: others' allreduces and barriers go on without it, as if it gave "
      "zeros. The Work is complete when all ranks have joined; its source is the last one.\n\n"
      "zeros: a function that returns an array of so many bytes of zeros on this rank's GPU, filled by its "
      "default stream; called by the queue's thread, for allreduces of GPUs' memory.",
      py::arg("zeros") = py::none());
  queue.def("start_timeline", &start_timeline,
            "Rank 0 writes the phases of each tensor to this file from now on; any timeline before ends. "
            "mark_cycles: it shows when negotiations begin. Other ranks' calls do nothing. Waits until all "
            "ranks know.",
            py::arg("path"), py::arg("mark_cycles") = false);
  queue.def("stop_timeline", &stop_timeline, "Complete the file of the timeline.");
  queue.def_property_readonly(
      "c_handle", &c_handle,
      "The queue as the tutti_tensor_queue_t of the C interface, a number: for libraries that submit "
      "natively. They "
      "link the libtutti of this package. Valid as long as this object; not to be closed by them.");
  queue.def("close", &OpenTensorQueue::close,
            "End the queue on all ranks; what is under way raises AbortedError. A second call does nothing.");
  queue.def("__enter__", [](const SharedQueue& self) { return self; });
  queue.def("__exit__", [](const SharedQueue& self, const py::args&) { self->close(); });
}

}  // namespace tutti::python

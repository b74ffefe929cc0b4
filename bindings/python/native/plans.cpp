// Makes plans of arrays, whose lengths must fit the collective, and runs them. See plans.hpp.
#include "bindings/python/native/plans.hpp"

#include <functional>
#include <string>
#include <utility>

#include "bindings/python/native/arguments.hpp"
#include "bindings/python/native/world.hpp"

namespace tutti::python {
namespace {

constexpr const char* kMake = "make_plan";
using SharedPlan = std::shared_ptr<OpenCallPlan>;
using Held = OpenCallPlan::Held;

// The arrays that a collective has on this rank: how many blocks of `count` elements, 0 for no array.
struct Blocks {
  int input = 0;
  int output = 0;
};

Blocks blocks_of(Collective collective, bool is_root, int size) {
  switch (collective) {
    case Collective::barrier:
      return {0, 0};
    case Collective::broadcast:
      return {0, 1};
    case Collective::reduce:
      return {1, is_root ? 1 : 0};
    case Collective::allgather:
      return {1, size};
    case Collective::gather:
      return {1, is_root ? size : 0};
    case Collective::reduce_scatter:
      return {size, 1};
    case Collective::scatter:
      return {is_root ? size : 0, 1};
    case Collective::alltoall:
      return {size, size};
    default:
      return {1, 1};
  }
}

// The arrays of one plan, and the call on them.
class Description {
 public:
  Description(const OpenGroup& group, Collective collective, int root, py::handle stream)
      : rank_(group.group().rank()),
        blocks_(blocks_of(collective, rank_ == root, group.group().size())),
        arguments_(group, kMake, stream) {
    call_.collective = collective;
    call_.root = root;
  }

  void take_arrays(py::handle input, py::handle output) {
    if (call_.collective == Collective::barrier) {
      if (!input.is_none() || !output.is_none())
        throw py::type_error(std::string(kMake) + ": a barrier has no arrays; expected None");
      return;
    }
    if (call_.collective == Collective::broadcast) return take_broadcast(input, output);
    const py::handle used_input = blocks_.input > 0 ? input : py::handle(Py_None);
    const py::handle used_output = blocks_.output > 0 ? output : py::handle(Py_None);
    // In place the output is part of the input, but of these two.
    const bool is_gathered =
        call_.collective == Collective::allgather || call_.collective == Collective::gather;
    const bool has_output_in_input = blocks_.input > 0 && !(is_gathered && blocks_.output > 0);
    if (has_output_in_input) {
      need(used_input, "input");
    } else {
      need(used_output, "output");
    }
    const bool is_input_written = has_output_in_input && blocks_.output > 0 && used_output.is_none() &&
                                  call_.collective != Collective::scatter;
    if (is_input_written) {
      buffers_.input = arguments_.array(used_input, "input", Use::written);
    } else {
      buffers_ = arguments_.buffers(used_input, used_output);
    }
    set_pointers(has_output_in_input);
  }

  void take_op(py::handle op, py::handle array) { call_.op = reduction_of(op, kMake, buffers_, array); }
  void take_options(py::handle algorithm) { call_.options = arguments_.options(algorithm, false); }
  const CollectiveCall& call() const { return call_; }
  Buffers& buffers() { return buffers_; }

 private:
  static void need(py::handle array, const char* name) {
    if (array.is_none())
      throw py::type_error(std::string(kMake) + ": " + name + ": expected an array, not None");
  }

  void take_broadcast(py::handle input, py::handle output) {
    need(input, "input");
    if (!output.is_none())
      throw py::type_error(std::string(kMake) +
                           ": a broadcast has one array, input; expected None as output");
    buffers_.output = arguments_.array(input, "input", rank_ == call_.root ? Use::read : Use::written);
    call_.output = buffers_.output.data();
    call_.count = buffers_.output.count();
    call_.dtype = buffers_.output.dtype();
  }

  void set_pointers(bool has_output_in_input) {
    const Array &in = buffers_.input, &out = buffers_.output;
    const Array& main = has_output_in_input ? in : out;
    call_.dtype = main.dtype();
    call_.count = block_count(kMake, has_output_in_input ? "input" : "output", main.count(),
                              has_output_in_input ? blocks_.input : blocks_.output);
    const auto expect = [&](const Array& array, const char* name, int blocks) {
      if (!array.is_empty())
        expect_count(kMake, name, array.count(), call_.count * static_cast<std::size_t>(blocks));
    };
    expect(in, "input", blocks_.input);
    expect(out, "output", blocks_.output);
    const std::size_t own =
        blocks_.input == blocks_.output ? 0 : static_cast<std::size_t>(rank_) * call_.count;
    if (blocks_.input > 0) call_.input = in.is_empty() ? out.at(own) : in.data();
    if (blocks_.output > 0) call_.output = out.is_empty() ? in.at(own) : out.data();
  }

  int rank_;
  Blocks blocks_;
  CallArguments arguments_;
  CollectiveCall call_;
  Buffers buffers_;
};

SharedPlan make_plan(const SharedGroup& group, py::handle input, py::handle output,
                     const std::string& collective, py::handle op, int root, py::handle partitions,
                     py::handle algorithm, py::handle stream) {
  return guarded(*group, kMake, [&] {
    Description description(*group, collective_of(collective, kMake), root, stream);
    description.take_arrays(input, output);
    if (!input.is_none()) description.take_op(op, input);
    description.take_options(algorithm);
    const std::vector<std::uint64_t> lengths = counts_of(partitions, kMake, "partitions");
    const CommGroup handle = group->group();
    CallPlan plan;
    {
      const WithoutGil without;
      plan = handle.make_plan(description.call(), lengths);
    }
    return std::make_shared<OpenCallPlan>(group, std::move(plan), std::move(description.buffers()));
  });
}

// Calls `use` with the plan; what it is called for must be a literal, since errors keep it.
template <class Use>
auto with_plan(const SharedPlan& self, const char* call, const Use& use) {
  return guarded(*self, call, [&] {
    const std::shared_ptr<Held> held = self->held();
    if (held == nullptr)
      throw Error(StatusCode::invalid_argument, -1, std::string(call) + ": this CallPlan is closed");
    return use(*held);
  });
}

template <class Call>
auto run_without_gil(const Call& call) {
  const WithoutGil without;
  return call();
}

void start(const SharedPlan& self) {
  with_plan(self, "start", [](const Held& held) { run_without_gil([&] { held.plan.start(); }); });
}

void ready(const SharedPlan& self, std::size_t first, std::size_t count) {
  with_plan(self, "ready",
            [&](const Held& held) { run_without_gil([&] { held.plan.ready(first, count); }); });
}

bool is_complete(const SharedPlan& self, std::optional<std::size_t> first, std::size_t count) {
  return with_plan(self, "is_complete", [&](const Held& held) {
    return run_without_gil(
        [&] { return first ? held.plan.is_complete(*first, count) : held.plan.is_complete(); });
  });
}

void wait(const SharedPlan& self, std::optional<std::size_t> first, std::size_t count) {
  constexpr const char* kWait = "wait";
  with_plan(self, kWait, [&](const Held& held) {
    check_may_wait();
    bool is_done = false;
    {
      WithoutGil without;
      const auto ask = [](void* waiting) { return static_cast<WithoutGil*>(waiting)->is_interrupted(); };
      is_done =
          first ? held.plan.wait_unless(*first, count, ask, &without) : held.plan.wait_unless(ask, &without);
    }
    if (!is_done) throw py::error_already_set();  // what the signal handler raised
    const py::object raised = held.buffers.op == nullptr ? py::object() : held.buffers.op->take_failure();
    if (raised) fail_by_op(*self, kWait, raised);
  });
}

std::size_t partition_count(const SharedPlan& self) {
  return with_plan(self, "partition_count", [](const Held& held) { return held.plan.partition_count(); });
}

}  // namespace

OpenCallPlan::OpenCallPlan(SharedGroup parent, CallPlan plan, Buffers buffers)
    : OpenGroup(parent->group()),
      parent_(std::move(parent)),
      held_(std::make_shared<Held>(std::move(plan), std::move(buffers))) {}

OpenCallPlan::~OpenCallPlan() { OpenCallPlan::close(); }

void OpenCallPlan::close() {
  held_.reset();
  OpenGroup::close();
}

void define_plans(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) {
  py::class_<OpenCallPlan, SharedPlan> plan(module, "CallPlan",
                                            "A call that is started again and again, of make_plan(). Any "
                                            "thread may use ready() and is_complete(); one "
                                            "thread at a time waits for a partition.");
  plan.def("start", &start,
           "Begin a run: of a plan without partitions the communication, of another one once partitions are "
           "ready.");
  plan.def(
      "ready", &ready,
      "Partitions first to first + count - 1 may be communicated from now on; their part of the arrays is in "
      "use until they are complete.",
      py::arg("first"), py::arg("count") = 1);
  plan.def(
      "is_complete", &is_complete,
      "Whether these partitions, or with None the run, are complete, also by failure. Makes progress; never "
      "waits.",
      py::arg("first") = py::none(), py::arg("count") = 1);
  plan.def(
      "wait", &wait,
      "Wait until these partitions, or with None the run, are complete. Raises the failure of the plan, and "
      "TimeoutError with the partitions that are not ready on this rank.",
      py::arg("first") = py::none(), py::arg("count") = 1);
  plan.def_property_readonly("partition_count", &partition_count, "0 for a plan without partitions.");
  plan.def("close", &OpenCallPlan::close,
           "End the plan and give its arrays back; a run under way raises AbortedError on all ranks. A "
           "second call "
           "does nothing.");
  plan.def("__enter__", [](const SharedPlan& self) { return self; });
  plan.def("__exit__", [](const SharedPlan& self, const py::args&) { self->close(); });

  constexpr const char* kText =
      "Describe a call once, to start it again and again: a CallPlan. The arrays are those of the "
      "collective's "
      "function; of a broadcast, input. partitions, of an allreduce: how many elements each has; they become "
      "ready, and complete, one by one. All ranks make equal plans of a group in the same order.";
  const auto define = [&](auto& where, const auto& call) {
    where.def(kMake, call, kText, py::arg("input"), py::arg("output") = py::none(), py::kw_only(),
              py::arg("collective") = "allreduce", py::arg("op") = "sum", py::arg("root") = 0,
              py::arg("partitions") = py::none(), py::arg("algorithm") = "", py::arg("stream") = py::none());
  };
  define(group, &make_plan);
  define(module, [](py::handle input, py::handle output, const std::string& collective, py::handle op,
                    int root, py::handle partitions, py::handle algorithm, py::handle stream) {
    return make_plan(world(), input, output, collective, op, root, partitions, algorithm, stream);
  });
}

}  // namespace tutti::python

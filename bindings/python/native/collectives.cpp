// Collectives with one count for all ranks, send and recv: converts arrays to pointers and counts, and checks
// their sizes. Knows no transport.
#include "bindings/python/native/collectives.hpp"

#include <string>

#include "bindings/python/native/define.hpp"

namespace tutti::python {
namespace {

// The arrays of an element-wise call. Without an output it is in place.
struct Elements {
  Buffers buffers;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::u8;
  py::handle result;
};

Elements elements_of(py::handle input, py::handle output, const char* call, CallArguments& arguments) {
  const bool is_in_place = output.is_none();
  Elements elements;
  if (is_in_place) {
    elements.buffers.output = arguments.array(input, "input", Use::written);
  } else {
    elements.buffers = arguments.buffers(input, output);
    expect_count(call, "output", elements.buffers.output.count(), elements.buffers.input.count());
  }
  const Array& written = elements.buffers.output;
  elements.output = written.data();
  elements.input = is_in_place ? elements.output : elements.buffers.input.data();
  elements.count = written.count();
  elements.dtype = written.dtype();
  elements.result = is_in_place ? input : output;
  return elements;
}

[[noreturn]] void refuse_none(const char* call, const char* name) {
  throw py::type_error(std::string(call) + ": " + name + ": expected an array, not None");
}

// allreduce, scan and exscan.
template <class Finish>
auto combine(const char* operation,
             Work (CommGroup::*submit)(const void*, void*, std::size_t, Dtype, Reduction, CallOptions) const,
             const SharedGroup& group, py::handle input, py::handle output, py::handle op,
             py::handle algorithm, py::handle stream, py::handle wire_dtype = py::none()) {
  CallArguments arguments(*group, operation, stream);
  Elements e = elements_of(input, output, operation, arguments);
  const Reduction reduction = reduction_of(op, operation, e.buffers, e.result);
  const CallOptions options = arguments.options(algorithm, Finish::kWaits, wire_dtype);
  return Finish::finish(group, operation, std::move(e.buffers), e.result, [&](const CommGroup& g) {
    return (g.*submit)(e.input, e.output, e.count, e.dtype, reduction, options);
  });
}

template <class Finish>
auto allreduce(const SharedGroup& group, py::handle input, py::handle output, py::handle op,
               py::handle algorithm, py::handle stream, py::handle wire_dtype) {
  return combine<Finish>("allreduce", &CommGroup::iallreduce, group, input, output, op, algorithm, stream,
                         wire_dtype);
}

template <class Finish>
auto scan(const SharedGroup& group, py::handle input, py::handle output, py::handle op, py::handle algorithm,
          py::handle stream) {
  return combine<Finish>("scan", &CommGroup::iscan, group, input, output, op, algorithm, stream);
}

template <class Finish>
auto exscan(const SharedGroup& group, py::handle input, py::handle output, py::handle op,
            py::handle algorithm, py::handle stream) {
  return combine<Finish>("exscan", &CommGroup::iexscan, group, input, output, op, algorithm, stream);
}

template <class Finish>
auto reduce(const SharedGroup& group, py::handle input, py::handle output, py::handle op, int root,
            py::handle algorithm, py::handle stream, py::handle wire_dtype) {
  CallArguments arguments(*group, "reduce", stream);
  Elements e;
  if (group->group().rank() == root) {
    e = elements_of(input, output, "reduce", arguments);
  } else {
    e.buffers.input = arguments.array(input, "input", Use::read);
    e.input = e.buffers.input.data();
    e.count = e.buffers.input.count();
    e.dtype = e.buffers.input.dtype();
    e.result = Py_None;
  }
  const Reduction reduction = reduction_of(op, "reduce", e.buffers, input);
  const CallOptions options = arguments.options(algorithm, Finish::kWaits, wire_dtype);
  return Finish::finish(group, "reduce", std::move(e.buffers), e.result, [&](const CommGroup& g) {
    return g.ireduce(e.input, e.output, e.count, e.dtype, reduction, root, options);
  });
}

template <class Finish>
auto broadcast(const SharedGroup& group, py::handle buffer, int root, py::handle algorithm,
               py::handle stream) {
  const Use use = group->group().rank() == root ? Use::read : Use::written;
  CallArguments arguments(*group, "broadcast", stream);
  Buffers buffers;
  buffers.output = arguments.array(buffer, "buffer", use);
  void* const data = buffers.output.data();
  const std::size_t count = buffers.output.count();
  const Dtype dtype = buffers.output.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, "broadcast", std::move(buffers), buffer,
                        [&](const CommGroup& g) { return g.ibroadcast(data, count, dtype, root, options); });
}

template <class Finish>
auto allgather(const SharedGroup& group, py::handle input, py::handle output, py::handle algorithm,
               py::handle stream) {
  if (output.is_none()) refuse_none("allgather", "output");
  const int size = group->group().size();
  CallArguments arguments(*group, "allgather", stream);
  Buffers buffers = arguments.buffers(input, output);
  const Array& written = buffers.output;
  const std::size_t count = block_count("allgather", "output", written.count(), size);
  if (!input.is_none()) expect_count("allgather", "input", buffers.input.count(), count);
  void* const to = written.data();
  const void* const from = input.is_none()
                               ? written.at(static_cast<std::size_t>(group->group().rank()) * count)
                               : buffers.input.data();
  const Dtype dtype = written.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, "allgather", std::move(buffers), output,
                        [&](const CommGroup& g) { return g.iallgather(from, to, count, dtype, options); });
}

template <class Finish>
auto reduce_scatter(const SharedGroup& group, py::handle input, py::handle output, py::handle op,
                    py::handle algorithm, py::handle stream, py::handle wire_dtype) {
  constexpr const char* kCall = "reduce_scatter";
  const bool is_in_place = output.is_none();
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers;
  if (is_in_place) {
    buffers.input = arguments.array(input, "input", Use::written);
  } else {
    if (input.is_none()) refuse_none(kCall, "input");
    buffers = arguments.buffers(input, output);
  }
  const Array& read = buffers.input;
  const std::size_t count = block_count(kCall, "input", read.count(), group->group().size());
  if (!is_in_place) expect_count(kCall, "output", buffers.output.count(), count);
  const void* const from = read.data();
  void* const to =
      is_in_place ? read.at(static_cast<std::size_t>(group->group().rank()) * count) : buffers.output.data();
  const Dtype dtype = read.dtype();
  const Reduction reduction = reduction_of(op, kCall, buffers, input);
  const CallOptions options = arguments.options(algorithm, Finish::kWaits, wire_dtype);
  return Finish::finish(
      group, kCall, std::move(buffers), is_in_place ? input : output,
      [&](const CommGroup& g) { return g.ireduce_scatter(from, to, count, dtype, reduction, options); });
}

template <class Finish>
auto alltoall(const SharedGroup& group, py::handle input, py::handle output, py::handle algorithm,
              py::handle stream) {
  CallArguments arguments(*group, "alltoall", stream);
  Elements e = elements_of(input, output, "alltoall", arguments);
  const std::size_t count = block_count("alltoall", "input", e.count, group->group().size());
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, "alltoall", std::move(e.buffers), e.result, [&](const CommGroup& g) {
    return g.ialltoall(e.input, e.output, count, e.dtype, options);
  });
}

template <class Finish>
auto gather(const SharedGroup& group, py::handle input, py::handle output, int root, py::handle algorithm,
            py::handle stream) {
  const int rank = group->group().rank();
  const bool is_root = rank == root;
  if (is_root && output.is_none()) refuse_none("gather", "output");
  if (!is_root && input.is_none()) refuse_none("gather", "input");
  CallArguments arguments(*group, "gather", stream);
  Buffers buffers = arguments.buffers(input, is_root ? output : py::handle(Py_None));
  const bool is_in_place = buffers.input.is_empty();
  std::size_t count = buffers.input.count();
  if (is_root) {
    count = block_count("gather", "output", buffers.output.count(), group->group().size());
    if (!is_in_place) expect_count("gather", "input", buffers.input.count(), count);
  }
  const void* const from =
      is_in_place ? buffers.output.at(static_cast<std::size_t>(rank) * count) : buffers.input.data();
  void* const to = buffers.output.data();
  const Dtype dtype = is_in_place ? buffers.output.dtype() : buffers.input.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, "gather", std::move(buffers), is_root ? output : py::handle(Py_None),
                        [&](const CommGroup& g) { return g.igather(from, to, count, dtype, root, options); });
}

template <class Finish>
auto scatter(const SharedGroup& group, py::handle input, py::handle output, int root, py::handle algorithm,
             py::handle stream) {
  const int rank = group->group().rank();
  const bool is_root = rank == root;
  if (is_root && input.is_none()) refuse_none("scatter", "input");
  if (!is_root && output.is_none()) refuse_none("scatter", "output");
  CallArguments arguments(*group, "scatter", stream);
  Buffers buffers = arguments.buffers(is_root ? input : py::handle(Py_None), output);
  const bool is_in_place = buffers.output.is_empty();
  std::size_t count = buffers.output.count();
  if (is_root) {
    count = block_count("scatter", "input", buffers.input.count(), group->group().size());
    if (!is_in_place) expect_count("scatter", "output", buffers.output.count(), count);
  }
  const void* const from = buffers.input.data();
  void* const to =
      is_in_place ? buffers.input.at(static_cast<std::size_t>(rank) * count) : buffers.output.data();
  const Dtype dtype = is_root ? buffers.input.dtype() : buffers.output.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(
      group, "scatter", std::move(buffers), is_in_place ? input : output,
      [&](const CommGroup& g) { return g.iscatter(from, to, count, dtype, root, options); });
}

template <class Finish>
auto barrier(const SharedGroup& group) {
  const CallOptions options = group->options();
  return Finish::finish(group, "barrier", {}, Py_None,
                        [&](const CommGroup& g) { return g.ibarrier(options); });
}

template <class Finish>
auto send(const SharedGroup& group, py::handle buffer, int peer, int tag, py::handle stream) {
  CallArguments arguments(*group, "send", stream);
  Buffers buffers;
  buffers.input = arguments.array(buffer, "buffer", Use::read);
  const void* const data = buffers.input.data();
  const std::size_t count = buffers.input.count();
  const Dtype dtype = buffers.input.dtype();
  const CallOptions options = arguments.options(Finish::kWaits);
  return Finish::finish(group, "send", std::move(buffers), Py_None,
                        [&](const CommGroup& g) { return g.isend(data, count, dtype, peer, tag, options); });
}

template <class Finish>
auto recv(const SharedGroup& group, py::handle buffer, std::optional<int> peer, int tag, py::handle stream) {
  CallArguments arguments(*group, "recv", stream);
  const int source = peer.value_or(kAnySource);
  Buffers buffers;
  buffers.output = arguments.array(buffer, "buffer", Use::written);
  void* const data = buffers.output.data();
  const std::size_t count = buffers.output.count();
  const Dtype dtype = buffers.output.dtype();
  const CallOptions options = arguments.options(Finish::kWaits);
  return Finish::finish(group, "recv", std::move(buffers), buffer, [&](const CommGroup& g) {
    return g.irecv(data, count, dtype, source, tag, options);
  });
}

// The calls that combine and move no vectors of all ranks.
void define_messages(Definer& definer) {
  const auto buffer = py::arg("buffer");
  const auto tag = py::arg("tag") = 0;
  const auto stream = py::arg("stream") = py::none();
  const py::kw_only keywords;
  definer.define("barrier", &barrier<Blocking>, &barrier<Background>,
                 "Return once every rank has called it.");
  definer.define("send", &send<Blocking>, &send<Background>,
                 "Send buffer to the rank peer, which must call recv() with as many elements and the same "
                 "tag (0 or more). Messages to one peer with one tag arrive in order; those with other "
                 "tags may overtake them. With a tag other than 0 it may wait until recv() is called.",
                 buffer, py::arg("peer"), tag, keywords, stream);
  definer.define("recv", &recv<Blocking>, &recv<Background>,
                 "Receive the next message with that tag into buffer, from the rank peer or, with None, "
                 "from the rank that sends first. recv_async(...).source is the sender. Returns buffer.",
                 buffer, py::arg("peer") = py::none(), tag, keywords, stream);
}

}  // namespace

void define_collectives(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) {
  Definer definer(module, group);
  const auto input = py::arg("input");
  const auto output = py::arg("output");
  const auto no_output = py::arg("output") = py::none();
  const auto buffer = py::arg("buffer");
  const auto op = py::arg("op") = "sum";
  const auto root = py::arg("root") = 0;
  const auto algorithm = py::arg("algorithm") = "";
  const auto stream = py::arg("stream") = py::none();
  const auto wire_dtype = py::arg("wire_dtype") = py::none();
  const py::kw_only keywords;
  definer.define("allreduce", &allreduce<Blocking>, &allreduce<Background>,
                 "Combine input of all ranks, element by element. All ranks get the result, in output "
                 "(same number of elements) or, without one, in place. Returns the array with the result. "
                 "wire_dtype: of float32, messages between nodes travel in it.",
                 input, no_output, op, keywords, algorithm, stream, wire_dtype);
  definer.define("reduce", &reduce<Blocking>, &reduce<Background>,
                 "As allreduce(), with the result at root only. Returns it there and None elsewhere, where "
                 "output is ignored.",
                 input, no_output, op, root, keywords, algorithm, stream, wire_dtype);
  definer.define("broadcast", &broadcast<Blocking>, &broadcast<Background>,
                 "Copy the buffer of root into the buffers of all other ranks. Returns buffer.", buffer, root,
                 keywords, algorithm, stream);
  definer.define("allgather", &allgather<Blocking>, &allgather<Background>,
                 "Concatenate input of all ranks, in rank order, in output (size times as many elements). "
                 "input None: it is in output already. Returns output.",
                 input, output, keywords, algorithm, stream);
  definer.define("reduce_scatter", &reduce_scatter<Blocking>, &reduce_scatter<Background>,
                 "Combine input of all ranks; rank r gets block r of the result (1/size of the elements), "
                 "in output. Without output it replaces that block of input. Returns the array with the "
                 "result.",
                 input, no_output, op, keywords, algorithm, stream, wire_dtype);
  definer.define("alltoall", &alltoall<Blocking>, &alltoall<Background>,
                 "Send block d of input to rank d; block s of output comes from rank s. Without output in "
                 "place. Returns the array with the result.",
                 input, no_output, keywords, algorithm, stream);
  definer.define("gather", &gather<Blocking>, &gather<Background>,
                 "As allgather(), with the result at root only. Returns output there and None elsewhere, "
                 "where output is ignored.",
                 input, no_output, root, keywords, algorithm, stream);
  definer.define("scatter", &scatter<Blocking>, &scatter<Background>,
                 "Send block r of input of root to output of rank r. input is ignored elsewhere; output "
                 "None at root: its block stays in input. Returns the array with the result.",
                 input, output, root, keywords, algorithm, stream);
  definer.define("scan", &scan<Blocking>, &scan<Background>,
                 "Combine input of ranks 0 to this one, in rank order. Without output in place. Returns the "
                 "array with the result.",
                 input, no_output, op, keywords, algorithm, stream);
  definer.define("exscan", &exscan<Blocking>, &exscan<Background>,
                 "Combine input of the ranks before this one; at rank 0 nothing is changed. Without output "
                 "in place. Returns the array with the result.",
                 input, no_output, op, keywords, algorithm, stream);
  define_messages(definer);
}

}  // namespace tutti::python

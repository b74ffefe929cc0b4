// Definitions of the typed calls of CommGroup: spans to pointers, counts and dtypes, with their sizes
// checked. Included by tutti.hpp.
#pragma once

#include "tutti/tutti.hpp"

namespace tutti {

namespace detail {
// Both throw invalid_argument, naming `what`, unless the sizes fit.
#pragma GCC visibility push(default)
void check_count(const char* what, std::size_t got, std::size_t expected);
std::size_t block_count(const char* what, std::size_t got, int ranks);  // got / ranks, which must be exact
#pragma GCC visibility pop

// Checks that every call with an input and an output needs.
template <class In, class T>
void check_spans(const char* what, std::size_t got, std::size_t expected) {
  static_assert(std::is_same_v<std::remove_const_t<In>, T>,
                "input and output must have the same element type");
  check_count(what, got, expected);
}
}  // namespace detail

template <class T>
Work CommGroup::iallreduce(std::span<T> buffer, Reduction op, CallOptions options) const {
  return iallreduce(buffer.data(), buffer.data(), buffer.size(), dtype_of<T>, op, options);
}
template <class In, class T>
Work CommGroup::iallreduce(std::span<In> input, std::span<T> output, Reduction op,
                           CallOptions options) const {
  detail::check_spans<In, T>("allreduce: output", output.size(), input.size());
  return iallreduce(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class T>
Work CommGroup::ibroadcast(std::span<T> buffer, int root, CallOptions options) const {
  return ibroadcast(buffer.data(), buffer.size(), dtype_of<T>, root, options);
}
template <class In, class T>
Work CommGroup::ireduce(std::span<In> input, std::span<T> output, Reduction op, int root,
                        CallOptions options) const {
  if (rank() == root) detail::check_spans<In, T>("reduce: output", output.size(), input.size());
  return ireduce(input.data(), output.data(), input.size(), dtype_of<T>, op, root, options);
}
template <class In, class T>
Work CommGroup::iallgather(std::span<In> input, std::span<T> output, CallOptions options) const {
  detail::check_spans<In, T>("allgather: output", output.size(),
                             input.size() * static_cast<std::size_t>(size()));
  return iallgather(input.data(), output.data(), input.size(), dtype_of<T>, options);
}
template <class In, class T>
Work CommGroup::ireduce_scatter(std::span<In> input, std::span<T> output, Reduction op,
                                CallOptions options) const {
  detail::check_spans<In, T>("reduce_scatter: input", input.size(),
                             output.size() * static_cast<std::size_t>(size()));
  return ireduce_scatter(input.data(), output.data(), output.size(), dtype_of<T>, op, options);
}
template <class In, class T>
Work CommGroup::ialltoall(std::span<In> input, std::span<T> output, CallOptions options) const {
  detail::check_spans<In, T>("alltoall: output", output.size(), input.size());
  return ialltoall(input.data(), output.data(), detail::block_count("alltoall: input", input.size(), size()),
                   dtype_of<T>, options);
}
template <class In, class T>
Work CommGroup::igather(std::span<In> input, std::span<T> output, int root, CallOptions options) const {
  if (rank() == root) {
    detail::check_spans<In, T>("gather: output", output.size(),
                               input.size() * static_cast<std::size_t>(size()));
  }
  return igather(input.data(), output.data(), input.size(), dtype_of<T>, root, options);
}
template <class In, class T>
Work CommGroup::iscatter(std::span<In> input, std::span<T> output, int root, CallOptions options) const {
  if (rank() == root) {
    detail::check_spans<In, T>("scatter: input", input.size(),
                               output.size() * static_cast<std::size_t>(size()));
  }
  return iscatter(input.data(), output.data(), output.size(), dtype_of<T>, root, options);
}
template <class In, class T>
Work CommGroup::iscan(std::span<In> input, std::span<T> output, Reduction op, CallOptions options) const {
  detail::check_spans<In, T>("scan: output", output.size(), input.size());
  return iscan(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class In, class T>
Work CommGroup::iexscan(std::span<In> input, std::span<T> output, Reduction op, CallOptions options) const {
  detail::check_spans<In, T>("exscan: output", output.size(), input.size());
  return iexscan(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class T>
Work CommGroup::isend(std::span<T> buffer, int peer, int tag, CallOptions options) const {
  return isend(buffer.data(), buffer.size(), dtype_of<T>, peer, tag, options);
}
template <class T>
Work CommGroup::irecv(std::span<T> buffer, int peer, int tag, CallOptions options) const {
  return irecv(buffer.data(), buffer.size(), dtype_of<T>, peer, tag, options);
}
template <class T>
void CommGroup::allreduce(std::span<T> buffer, Reduction op, CallOptions options) const {
  allreduce(buffer.data(), buffer.data(), buffer.size(), dtype_of<T>, op, options);
}
template <class In, class T>
void CommGroup::allreduce(std::span<In> input, std::span<T> output, Reduction op, CallOptions options) const {
  detail::check_spans<In, T>("allreduce: output", output.size(), input.size());
  allreduce(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class T>
void CommGroup::broadcast(std::span<T> buffer, int root, CallOptions options) const {
  broadcast(buffer.data(), buffer.size(), dtype_of<T>, root, options);
}
template <class In, class T>
void CommGroup::reduce(std::span<In> input, std::span<T> output, Reduction op, int root,
                       CallOptions options) const {
  if (rank() == root) detail::check_spans<In, T>("reduce: output", output.size(), input.size());
  reduce(input.data(), output.data(), input.size(), dtype_of<T>, op, root, options);
}
template <class In, class T>
void CommGroup::allgather(std::span<In> input, std::span<T> output, CallOptions options) const {
  detail::check_spans<In, T>("allgather: output", output.size(),
                             input.size() * static_cast<std::size_t>(size()));
  allgather(input.data(), output.data(), input.size(), dtype_of<T>, options);
}
template <class In, class T>
void CommGroup::reduce_scatter(std::span<In> input, std::span<T> output, Reduction op,
                               CallOptions options) const {
  detail::check_spans<In, T>("reduce_scatter: input", input.size(),
                             output.size() * static_cast<std::size_t>(size()));
  reduce_scatter(input.data(), output.data(), output.size(), dtype_of<T>, op, options);
}
template <class In, class T>
void CommGroup::alltoall(std::span<In> input, std::span<T> output, CallOptions options) const {
  detail::check_spans<In, T>("alltoall: output", output.size(), input.size());
  alltoall(input.data(), output.data(), detail::block_count("alltoall: input", input.size(), size()),
           dtype_of<T>, options);
}
template <class In, class T>
void CommGroup::gather(std::span<In> input, std::span<T> output, int root, CallOptions options) const {
  if (rank() == root) {
    detail::check_spans<In, T>("gather: output", output.size(),
                               input.size() * static_cast<std::size_t>(size()));
  }
  gather(input.data(), output.data(), input.size(), dtype_of<T>, root, options);
}
template <class In, class T>
void CommGroup::scatter(std::span<In> input, std::span<T> output, int root, CallOptions options) const {
  if (rank() == root) {
    detail::check_spans<In, T>("scatter: input", input.size(),
                               output.size() * static_cast<std::size_t>(size()));
  }
  scatter(input.data(), output.data(), output.size(), dtype_of<T>, root, options);
}
template <class In, class T>
void CommGroup::scan(std::span<In> input, std::span<T> output, Reduction op, CallOptions options) const {
  detail::check_spans<In, T>("scan: output", output.size(), input.size());
  scan(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class In, class T>
void CommGroup::exscan(std::span<In> input, std::span<T> output, Reduction op, CallOptions options) const {
  detail::check_spans<In, T>("exscan: output", output.size(), input.size());
  exscan(input.data(), output.data(), input.size(), dtype_of<T>, op, options);
}
template <class T>
void CommGroup::send(std::span<T> buffer, int peer, int tag, CallOptions options) const {
  send(buffer.data(), buffer.size(), dtype_of<T>, peer, tag, options);
}
template <class T>
int CommGroup::recv(std::span<T> buffer, int peer, int tag, CallOptions options) const {
  return recv(buffer.data(), buffer.size(), dtype_of<T>, peer, tag, options);
}

}  // namespace tutti

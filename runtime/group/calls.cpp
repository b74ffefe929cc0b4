// The functions of CommGroup that communicate: each describes its call, which is then checked and submitted.
// Knows no transport and no algorithm.
#include "runtime/group/call_check.hpp"
#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

// A call as its caller describes it becomes one that may be submitted. Throws what is wrong with it.
CommGroup::Impl& admit(const CommGroup& handle, const char* name, Call& call, const Reduction* reduction) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  if (reduction != nullptr) call.op = group.convert(*reduction);
  const auto rank = static_cast<std::uint32_t>(group.rank()), size = static_cast<std::uint32_t>(group.size());
  if (group.world().settings().check != CheckLevel::off) throw_if_error(check_call(name, call, rank, size));
  normalise(call, rank, size);
  return group;
}

Work start(const CommGroup& handle, const char* name, Call call, const CallOptions& options,
           const Reduction* reduction = nullptr) {
  return admit(handle, name, call, reduction).start(call, options.algorithm);
}

void run(const CommGroup& handle, const char* name, Call call, const CallOptions& options,
         const Reduction* reduction = nullptr) {
  admit(handle, name, call, reduction).run(call, options.algorithm);
}

Call make_call(Collective collective, const void* input, void* output, std::size_t count, Dtype dtype,
               int root = 0) {
  Call call;
  call.collective = collective;
  call.dtype = dtype;
  call.root = static_cast<std::uint32_t>(root);  // a negative one becomes too large and is reported
  call.input = input;
  call.output = output;
  call.count = count;
  return call;
}

Call make_call(Collective collective, const void* input, void* output, Counts counts, Counts displacements,
               Dtype dtype, int root = 0) {
  Call call = make_call(collective, input, output, 0, dtype, root);
  call.counts = counts;
  call.displacements = displacements;
  return call;
}

}  // namespace

Work CommGroup::iallreduce(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                           CallOptions options) const {
  return start(*this, "allreduce", make_call(Collective::allreduce, input, output, count, dtype), options,
               &op);
}

Work CommGroup::ibroadcast(void* buffer, std::size_t count, Dtype dtype, int root,
                           CallOptions options) const {
  return start(*this, "broadcast", make_call(Collective::broadcast, nullptr, buffer, count, dtype, root),
               options);
}

Work CommGroup::ireduce(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                        int root, CallOptions options) const {
  return start(*this, "reduce", make_call(Collective::reduce, input, output, count, dtype, root), options,
               &op);
}

Work CommGroup::iallgather(const void* input, void* output, std::size_t count, Dtype dtype,
                           CallOptions options) const {
  return start(*this, "allgather", make_call(Collective::allgather, input, output, count, dtype), options);
}

Work CommGroup::iallgatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                            CallOptions options) const {
  return start(*this, "allgatherv",
               make_call(Collective::allgather, input, output, counts, displacements, dtype), options);
}

Work CommGroup::ireduce_scatter(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                                CallOptions options) const {
  return start(*this, "reduce_scatter", make_call(Collective::reduce_scatter, input, output, count, dtype),
               options, &op);
}

Work CommGroup::ireduce_scatterv(const void* input, void* output, Counts counts, Dtype dtype, Reduction op,
                                 CallOptions options) const {
  return start(*this, "reduce_scatterv",
               make_call(Collective::reduce_scatter, input, output, counts, {}, dtype), options, &op);
}

Work CommGroup::ialltoall(const void* input, void* output, std::size_t count, Dtype dtype,
                          CallOptions options) const {
  return start(*this, "alltoall", make_call(Collective::alltoall, input, output, count, dtype), options);
}

Work CommGroup::ialltoallv(const void* input, Counts input_counts, Counts input_displacements, void* output,
                           Counts output_counts, Counts output_displacements, Dtype dtype,
                           CallOptions options) const {
  Call call = make_call(Collective::alltoall, input, output, input_counts, input_displacements, dtype);
  call.output_counts = output_counts;
  call.output_displacements = output_displacements;
  return start(*this, "alltoallv", call, options);
}

Work CommGroup::igather(const void* input, void* output, std::size_t count, Dtype dtype, int root,
                        CallOptions options) const {
  return start(*this, "gather", make_call(Collective::gather, input, output, count, dtype, root), options);
}

Work CommGroup::igatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                         int root, CallOptions options) const {
  return start(*this, "gatherv",
               make_call(Collective::gather, input, output, counts, displacements, dtype, root), options);
}

Work CommGroup::iscatter(const void* input, void* output, std::size_t count, Dtype dtype, int root,
                         CallOptions options) const {
  return start(*this, "scatter", make_call(Collective::scatter, input, output, count, dtype, root), options);
}

Work CommGroup::iscatterv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                          int root, CallOptions options) const {
  return start(*this, "scatterv",
               make_call(Collective::scatter, input, output, counts, displacements, dtype, root), options);
}

Work CommGroup::ibarrier(CallOptions options) const {
  return start(*this, "barrier", make_call(Collective::barrier, nullptr, nullptr, 0, Dtype::u8), options);
}

Work CommGroup::iscan(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                      CallOptions options) const {
  return start(*this, "scan", make_call(Collective::scan, input, output, count, dtype), options, &op);
}

Work CommGroup::iexscan(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                        CallOptions options) const {
  return start(*this, "exscan", make_call(Collective::exscan, input, output, count, dtype), options, &op);
}

Work CommGroup::isend(const void* buffer, std::size_t count, Dtype dtype, int peer) const {
  Call call = make_call(Collective::send_recv, buffer, nullptr, count, dtype, peer);
  call.is_send = true;
  return start(*this, "send", call, {});
}

Work CommGroup::irecv(void* buffer, std::size_t count, Dtype dtype, int peer) const {
  return start(*this, "recv", make_call(Collective::send_recv, nullptr, buffer, count, dtype, peer), {});
}

// -- the same, to its end -----------------------------------------------------------------------------------

void CommGroup::allreduce(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                          CallOptions options) const {
  run(*this, "allreduce", make_call(Collective::allreduce, input, output, count, dtype), options, &op);
}

void CommGroup::broadcast(void* buffer, std::size_t count, Dtype dtype, int root, CallOptions options) const {
  run(*this, "broadcast", make_call(Collective::broadcast, nullptr, buffer, count, dtype, root), options);
}

void CommGroup::reduce(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                       int root, CallOptions options) const {
  run(*this, "reduce", make_call(Collective::reduce, input, output, count, dtype, root), options, &op);
}

void CommGroup::allgather(const void* input, void* output, std::size_t count, Dtype dtype,
                          CallOptions options) const {
  run(*this, "allgather", make_call(Collective::allgather, input, output, count, dtype), options);
}

void CommGroup::allgatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                           CallOptions options) const {
  run(*this, "allgatherv", make_call(Collective::allgather, input, output, counts, displacements, dtype),
      options);
}

void CommGroup::reduce_scatter(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                               CallOptions options) const {
  run(*this, "reduce_scatter", make_call(Collective::reduce_scatter, input, output, count, dtype), options,
      &op);
}

void CommGroup::reduce_scatterv(const void* input, void* output, Counts counts, Dtype dtype, Reduction op,
                                CallOptions options) const {
  run(*this, "reduce_scatterv", make_call(Collective::reduce_scatter, input, output, counts, {}, dtype),
      options, &op);
}

void CommGroup::alltoall(const void* input, void* output, std::size_t count, Dtype dtype,
                         CallOptions options) const {
  run(*this, "alltoall", make_call(Collective::alltoall, input, output, count, dtype), options);
}

void CommGroup::alltoallv(const void* input, Counts input_counts, Counts input_displacements, void* output,
                          Counts output_counts, Counts output_displacements, Dtype dtype,
                          CallOptions options) const {
  Call call = make_call(Collective::alltoall, input, output, input_counts, input_displacements, dtype);
  call.output_counts = output_counts;
  call.output_displacements = output_displacements;
  run(*this, "alltoallv", call, options);
}

void CommGroup::gather(const void* input, void* output, std::size_t count, Dtype dtype, int root,
                       CallOptions options) const {
  run(*this, "gather", make_call(Collective::gather, input, output, count, dtype, root), options);
}

void CommGroup::gatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                        int root, CallOptions options) const {
  run(*this, "gatherv", make_call(Collective::gather, input, output, counts, displacements, dtype, root),
      options);
}

void CommGroup::scatter(const void* input, void* output, std::size_t count, Dtype dtype, int root,
                        CallOptions options) const {
  run(*this, "scatter", make_call(Collective::scatter, input, output, count, dtype, root), options);
}

void CommGroup::scatterv(const void* input, void* output, Counts counts, Counts displacements, Dtype dtype,
                         int root, CallOptions options) const {
  run(*this, "scatterv", make_call(Collective::scatter, input, output, counts, displacements, dtype, root),
      options);
}

void CommGroup::barrier(CallOptions options) const {
  run(*this, "barrier", make_call(Collective::barrier, nullptr, nullptr, 0, Dtype::u8), options);
}

void CommGroup::scan(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                     CallOptions options) const {
  run(*this, "scan", make_call(Collective::scan, input, output, count, dtype), options, &op);
}

void CommGroup::exscan(const void* input, void* output, std::size_t count, Dtype dtype, Reduction op,
                       CallOptions options) const {
  run(*this, "exscan", make_call(Collective::exscan, input, output, count, dtype), options, &op);
}

void CommGroup::send(const void* buffer, std::size_t count, Dtype dtype, int peer) const {
  Call call = make_call(Collective::send_recv, buffer, nullptr, count, dtype, peer);
  call.is_send = true;
  run(*this, "send", call, {});
}

void CommGroup::recv(void* buffer, std::size_t count, Dtype dtype, int peer) const {
  run(*this, "recv", make_call(Collective::send_recv, nullptr, buffer, count, dtype, peer), {});
}

}  // namespace tutti

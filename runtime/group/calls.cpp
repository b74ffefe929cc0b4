// The functions of CommGroup that communicate: each describes its call, which is then checked and submitted.
// Knows no transport and no algorithm.
#include "runtime/group/call_check.hpp"
#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

bool is_plain(Op op) { return op != Op::user && op != Op::premul_sum; }

// A call that was found right, as its caller described it, and what it became.
class Admitted {
 public:
  bool is_of(const CommGroup::Impl& group, const Call& call) const {
    return group_number_ == group.number() && collective_ == call.collective && dtype_ == call.dtype &&
           op_ == call.op.op && root_ == call.root && is_send_ == call.is_send && count_ == call.count &&
           input_ == call.input && output_ == call.output;
  }
  void apply(Call& call) const {
    call.in_place = in_place_;
    call.input = admitted_input_;
    call.output = admitted_output_;
  }
  void remember(const CommGroup::Impl& group, const Call& asked, const Call& admitted) {
    group_number_ = group.number();
    collective_ = asked.collective;
    dtype_ = asked.dtype;
    op_ = asked.op.op;
    root_ = asked.root;
    is_send_ = asked.is_send;
    count_ = asked.count;
    input_ = asked.input;
    output_ = asked.output;
    in_place_ = admitted.in_place;
    admitted_input_ = admitted.input;
    admitted_output_ = admitted.output;
  }

 private:
  std::uint64_t group_number_ = 0;
  Collective collective_ = Collective::barrier;
  Dtype dtype_ = Dtype::u8;
  Op op_ = Op::sum;
  bool is_send_ = false, in_place_ = false;
  std::uint32_t root_ = 0;
  std::uint64_t count_ = 0;
  const void *input_ = nullptr, *admitted_input_ = nullptr;
  void *output_ = nullptr, *admitted_output_ = nullptr;
};

// A call as its caller describes it becomes one that may be submitted. Throws what is wrong with it.
CommGroup::Impl& admit(const CommGroup& handle, const char* name, Call& call, const Reduction* reduction) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  const bool is_simple = call.counts.empty() && (reduction == nullptr || is_plain(reduction->op()));
  if (is_simple && reduction != nullptr) call.op = ReduceOp(reduction->op());
  // Training repeats itself: the very call that this thread made last is right.
  thread_local Admitted last;
  if (is_simple && last.is_of(group, call)) {
    last.apply(call);
    return group;
  }
  const Call asked = call;
  if (reduction != nullptr) call.op = group.convert(*reduction);
  const auto rank = static_cast<std::uint32_t>(group.rank()), size = static_cast<std::uint32_t>(group.size());
  if (group.world().settings().check != CheckLevel::off) throw_if_error(check_call(name, call, rank, size));
  normalise(call, rank, size);
  if (is_simple) last.remember(group, asked, call);
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

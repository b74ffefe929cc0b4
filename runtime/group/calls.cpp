// The functions of CommGroup that communicate: each describes its call, which is then checked and submitted.
// Knows no transport and no algorithm.
#include <array>
#include <bit>

#include "backends/registry.hpp"
#include "runtime/base/call_signature.hpp"
#include "runtime/group/call_admission.hpp"
#include "runtime/group/call_check.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/device_calls.hpp"

namespace tutti {
namespace {

static_assert(static_cast<std::uint32_t>(kAnySource) == kFromAnyRank);

bool is_plain(Op op) { return op != Op::user && op != Op::premul_sum; }

// A call with one count for all ranks, as its caller describes it: its signature and its buffers.
class SimpleCall {
 public:
  SimpleCall() = default;
  SimpleCall(Collective collective, const void* input, void* output, std::uint64_t count, Dtype dtype,
             std::uint32_t root, std::uint32_t tag = 0, bool is_send = false)
      : input_(input), output_(output), signature_(collective, count, dtype, root, tag, is_send) {}
  void set_op(Op op) { signature_.set_op(op); }
  void set_wire_dtype(std::optional<Dtype> dtype) { signature_.set_wire_dtype(dtype); }

  const void* input() const { return input_; }
  const void* output() const { return output_; }
  bool operator==(const SimpleCall& other) const {
    // Without branches: nearly always true.
    const auto differing = (address(input_) ^ address(other.input_)) |
                           (address(output_) ^ address(other.output_)) |
                           signature_.difference(other.signature_);
    return differing == 0;
  }
  // Where to look for an equal one, among so many places.
  static constexpr std::size_t kPlaces = 256;
  std::size_t place() const {
    constexpr auto kBits = static_cast<unsigned>(std::countr_zero(kPlaces));
    return ((address(input_) ^ (signature_.count() << 6U) ^
             static_cast<std::uint64_t>(signature_.collective())) *
            0x9E3779B97F4A7C15U) >>
           (64U - kBits);
  }
  // Without its op.
  Call described() const {
    Call call = signature_.described();
    call.input = input_;
    call.output = output_;
    return call;
  }

 private:
  static std::uint64_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

  const void* input_ = nullptr;
  void* output_ = nullptr;
  CallSignature signature_;
};

// A checked call and its prepared form.
struct Admitted {
  std::uint64_t group_number = 0;
  SimpleCall asked;
  CachedCall* cached = nullptr;  // the group's
  bool has_asked_for_cached = false;
  Call call;

  bool is_of(const CommGroup::Impl& group, const SimpleCall& other) const {
    return group_number == group.number() && asked == other;
  }
};

// The recent calls of this thread: 64 KiB, which only threads that call have.
constinit thread_local Admitted* recent_calls = nullptr;

// Frees them when the thread ends. Those of calls that later destructors of the thread make are not freed.
struct RecentCalls {
  std::array<Admitted, SimpleCall::kPlaces> places;
  ~RecentCalls() { recent_calls = nullptr; }
};

[[gnu::noinline]] void make_recent_calls() {
  thread_local bool is_first = true;
  auto made = std::make_unique<RecentCalls>();
  recent_calls = made->places.data();
  if (!std::exchange(is_first, false)) return static_cast<void>(made.release());
  thread_local std::unique_ptr<RecentCalls> until_end;
  until_end = std::move(made);
}

// Training repeats its calls: the slot of this thread that may hold an equal call.
Admitted& remembered(const SimpleCall& call) {
  if (recent_calls == nullptr) [[unlikely]]
    make_recent_calls();
  return recent_calls[call.place()];
}

// Whether the call may be on GPU memory.
bool may_be_on_device(const CallOptions& options) {
  return options.memory == Memory::device || (options.memory == Memory::detect && is_cuda_in_use());
}

// Whether it is known to be.
bool is_on_device(const SimpleCall& call, const CallOptions& options) {
  if (!may_be_on_device(options)) return false;
  return options.memory == Memory::device || (call.input() != nullptr && device_of(call.input()) >= 0) ||
         (call.output() != nullptr && device_of(call.output()) >= 0);
}

WaitHook hook_of(const CallOptions& options) {
  return {options.while_waiting, options.while_waiting_context};
}

Work start(const CommGroup& handle, const char* name, const Call& call, const CallOptions& options,
           const Reduction* reduction = nullptr) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  return group.start(admit(group, name, call, options, reduction), options);
}

void run(const CommGroup& handle, const char* name, const Call& call, const CallOptions& options,
         const Reduction* reduction = nullptr) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  const WaitHookScope scope(hook_of(options));
  group.run(admit(group, name, call, options, reduction), options.algorithm);
}

// An equal recent call of this thread was checked already.
Admitted& admit(CommGroup::Impl& group, const char* name, const SimpleCall& call, const CallOptions& options,
                const Reduction* reduction) {
  Admitted& known = remembered(call);
  if (known.is_of(group, call)) return known;
  const Call admitted = admit(group, name, call.described(), options, reduction);
  // A call on GPU memory is not remembered; see is_special().
  known = {admitted.is_device ? 0 : group.number(), call, nullptr, false, admitted};
  return known;
}

// Not to be remembered: its op has arguments (opaque elements need them), it has a residual, or its memory is on a GPU
// now but may not be later.
bool is_special(const SimpleCall& call, const CallOptions& options, const Reduction* reduction) {
  return (reduction != nullptr && !is_plain(reduction->op())) || options.residual != nullptr ||
         is_on_device(call, options);
}

Work start(const CommGroup& handle, const char* name, SimpleCall call, const CallOptions& options,
           const Reduction* reduction = nullptr) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  if (is_special(call, options, reduction)) return start(handle, name, call.described(), options, reduction);
  if (reduction != nullptr) call.set_op(reduction->op());
  call.set_wire_dtype(options.wire_dtype);
  return group.start(admit(group, name, call, options, reduction).call, options);
}

[[gnu::noinline]] void run_new(const CommGroup& handle, const char* name, const SimpleCall& call,
                               const CallOptions& options, const Reduction* reduction) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  if (is_special(call, options, reduction)) return run(handle, name, call.described(), options, reduction);
  Admitted& known = admit(group, name, call, options, reduction);
  const WaitHookScope scope(hook_of(options));
  if (!options.algorithm.empty()) return group.run(known.call, options.algorithm);
  group.run(known.call, {});
  // While it waited, a user's function may have made other calls.
  if (!known.has_asked_for_cached && known.is_of(group, call)) {
    known.has_asked_for_cached = true;
    known.cached = group.cached_call(known.call);
  }
}

// Nothing special is ever remembered as cached: what this asks first is all that a short call which
// repeats has to answer.
void run(const CommGroup& handle, const char* name, SimpleCall call, const CallOptions& options,
         const Reduction* reduction = nullptr) {
  CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  if (reduction != nullptr) call.set_op(reduction->op());
  call.set_wire_dtype(options.wire_dtype);
  const Admitted& known = remembered(call);
  if (known.cached != nullptr && known.is_of(group, call) && options.algorithm.empty() &&
      !is_on_device(call, options) && group.run(known.call, *known.cached, options))
    return;
  run_new(handle, name, call, options, reduction);
}

// Negative roots, peers and tags become too large and are reported.
SimpleCall make_call(Collective collective, const void* input, void* output, std::size_t count, Dtype dtype,
                     int root = 0) {
  return {collective, input, output, count, dtype, static_cast<std::uint32_t>(root)};
}

SimpleCall make_receive(void* buffer, std::size_t count, Dtype dtype, int peer, int tag) {
  return {Collective::send_recv,          nullptr, buffer, count, dtype, static_cast<std::uint32_t>(peer),
          static_cast<std::uint32_t>(tag)};
}

SimpleCall make_send(const void* buffer, std::size_t count, Dtype dtype, int peer, int tag) {
  return {Collective::send_recv,           buffer, nullptr, count, dtype, static_cast<std::uint32_t>(peer),
          static_cast<std::uint32_t>(tag), true};
}

Call make_call(Collective collective, const void* input, void* output, Counts counts, Counts displacements,
               Dtype dtype, int root = 0) {
  Call call = make_call(collective, input, output, std::size_t{0}, dtype, root).described();
  call.counts = counts;
  call.displacements = displacements;
  return call;
}

// Where only the root has counts, no rank may choose by them: "linear" works block by block.
Call make_call_of_root(const CommGroup& handle, const char* name, Collective collective, const void* input,
                       void* output, std::size_t own_count, Counts counts, Counts displacements, Dtype dtype,
                       int root, CallOptions& options) {
  constexpr std::string_view kAlgorithm = "linear";
  const CommGroup::Impl& group = CommGroup::Impl::of(handle, name);
  if (!options.algorithm.empty() && options.algorithm != kAlgorithm) {
    throw_error(
        invalid_argument(std::string(name) + ": algorithm: '" + std::string(options.algorithm) +
                         "' needs the counts on all ranks; with counts at the root alone there is only '" +
                         std::string(kAlgorithm) + "'"));
  }
  options.algorithm = kAlgorithm;
  Call call = make_call(collective, input, output, own_count, dtype, root).described();
  call.has_counts_at_root = true;
  if (group.rank() != root) return call;
  call.counts = counts;
  call.displacements = displacements;
  return call;
}

}  // namespace

Call admit(CommGroup::Impl& group, const char* name, Call call, const CallOptions& options,
           const Reduction* reduction) {
  if (reduction != nullptr) call.op = CommGroup::Impl::convert(*reduction);
  call.wire_dtype = options.wire_dtype;
  call.residual = options.residual;
  const auto rank = static_cast<std::uint32_t>(group.rank()), size = static_cast<std::uint32_t>(group.size());
  if (group.world().settings().check != CheckLevel::off) throw_if_error(check_call(name, call, rank, size));
  if (options.memory != Memory::host) look_for_cuda();
  if (may_be_on_device(options)) throw_if_error(locate(name, call, rank, size, options.memory));
  if (call.residual != nullptr && call.is_device)
    throw_error(unsupported(std::string(name) + ": residual: only calls on the memory of the host have one"));
  call.stream = options.cuda_stream;
  normalise(call, rank, size);
  return call;
}

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

Work CommGroup::igatherv(const void* input, std::size_t own_count, void* output, Counts counts,
                         Counts displacements, Dtype dtype, int root, CallOptions options) const {
  const Call call = make_call_of_root(*this, "gatherv", Collective::gather, input, output, own_count, counts,
                                      displacements, dtype, root, options);
  return start(*this, "gatherv", call, options);
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

Work CommGroup::iscatterv(const void* input, Counts counts, Counts displacements, void* output,
                          std::size_t own_count, Dtype dtype, int root, CallOptions options) const {
  const Call call = make_call_of_root(*this, "scatterv", Collective::scatter, input, output, own_count,
                                      counts, displacements, dtype, root, options);
  return start(*this, "scatterv", call, options);
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

Work CommGroup::isend(const void* buffer, std::size_t count, Dtype dtype, int peer, int tag,
                      CallOptions options) const {
  return start(*this, "send", make_send(buffer, count, dtype, peer, tag), options);
}

Work CommGroup::irecv(void* buffer, std::size_t count, Dtype dtype, int peer, int tag,
                      CallOptions options) const {
  return start(*this, "recv", make_receive(buffer, count, dtype, peer, tag), options);
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

void CommGroup::gatherv(const void* input, std::size_t own_count, void* output, Counts counts,
                        Counts displacements, Dtype dtype, int root, CallOptions options) const {
  const Call call = make_call_of_root(*this, "gatherv", Collective::gather, input, output, own_count, counts,
                                      displacements, dtype, root, options);
  run(*this, "gatherv", call, options);
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

void CommGroup::scatterv(const void* input, Counts counts, Counts displacements, void* output,
                         std::size_t own_count, Dtype dtype, int root, CallOptions options) const {
  const Call call = make_call_of_root(*this, "scatterv", Collective::scatter, input, output, own_count,
                                      counts, displacements, dtype, root, options);
  run(*this, "scatterv", call, options);
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

void CommGroup::send(const void* buffer, std::size_t count, Dtype dtype, int peer, int tag,
                     CallOptions options) const {
  run(*this, "send", make_send(buffer, count, dtype, peer, tag), options);
}

int CommGroup::recv(void* buffer, std::size_t count, Dtype dtype, int peer, int tag,
                    CallOptions options) const {
  CommGroup::Impl& group = CommGroup::Impl::of(*this, "recv");
  const WaitHookScope scope(hook_of(options));
  SimpleCall call = make_receive(buffer, count, dtype, peer, tag);
  call.set_wire_dtype(options.wire_dtype);
  if (is_special(call, options, nullptr))
    return group.receive(admit(group, "recv", call.described(), options, nullptr), options.algorithm);
  return group.receive(admit(group, "recv", call, options, nullptr).call, options.algorithm);
}

}  // namespace tutti

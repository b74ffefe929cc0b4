// Alltoall by direct messages, each block straight to its owner: all at once (linear) or in the order of a
// tournament (pairwise).
// Knows nothing of transports, dtypes, time or memory.
//
// input: p blocks, block d for rank d; output: p blocks, block s from rank s; scratch: none, in place p-1
//   blocks.
// rounds 1 (no message waits for another)
// bytes sent per rank (p-1)/p m; counts may differ (alltoallv).
// linear posts every receive, then every send, nearest rank first: lowest latency while ranks are few.
// pairwise posts exchange after exchange; in step d all ranks form disjoint pairs (p a power of two: r and r
// xor d) or shifts, so that a transport that works off its queue in order loads each rank once per step.
// In place, a block that arrives would overwrite one not yet sent: outgoing blocks are set aside first.
// Source: pairwise exchange and "isend/irecv" of MPICH and Open MPI.
#include "runtime/schedule/builder.hpp"

namespace tutti {
namespace {

class DirectExchange {
 public:
  DirectExchange(const CollectiveSpec& spec, const GroupView& view) : b_(spec, view, view.size) {
    if (b_.in_place() && b_.size() > 1) b_.copy(aside(1, b_.size() - 1), b_.input(next(1), b_.size() - 1));
    b_.copy(b_.output(b_.rank()), b_.input(b_.rank()));
  }
  std::uint32_t size() const { return b_.size(); }
  std::uint32_t rank() const { return b_.rank(); }
  // The rank d places to the right.
  std::uint32_t next(std::uint32_t d) const { return (b_.rank() + d) % b_.size(); }

  void recv_from(std::uint32_t peer) { b_.recv(peer, b_.output(peer)); }
  void send_to(std::uint32_t peer) {
    const std::uint32_t d = (peer + b_.size() - b_.rank()) % b_.size();
    b_.send(peer, b_.in_place() ? aside(d, 1) : b_.input(peer));
  }
  Result<Schedule> finish() { return std::move(b_).finish(); }

 private:
  Slice aside(std::uint32_t d, std::uint32_t count) const { return b_.scratch(d - 1, next(d), count); }

  Builder b_;
};

}  // namespace

Result<Schedule> alltoall_linear(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  DirectExchange exchange(spec, view);
  const std::uint32_t p = exchange.size();
  for (std::uint32_t d = 1; d < p; ++d) exchange.recv_from(exchange.next(p - d));
  for (std::uint32_t d = 1; d < p; ++d) exchange.send_to(exchange.next(d));
  return exchange.finish();
}

Result<Schedule> alltoall_pairwise(const CollectiveSpec& spec, const GroupView& view,
                                   const AlgorithmParams&) {
  DirectExchange exchange(spec, view);
  const std::uint32_t p = exchange.size();
  const bool is_power_of_two = (p & (p - 1)) == 0;
  for (std::uint32_t d = 1; d < p; ++d) {
    const std::uint32_t partner = exchange.rank() ^ d;
    exchange.recv_from(is_power_of_two ? partner : exchange.next(p - d));
    exchange.send_to(is_power_of_two ? partner : exchange.next(d));
  }
  return exchange.finish();
}

}  // namespace tutti

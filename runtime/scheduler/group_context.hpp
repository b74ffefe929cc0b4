// The scheduler's view of one group: how its peers are reached, which operations it has under way, its
// failure state. Knows no bootstrap, no public API and no algorithm.
//
// Identity of an operation is (group, sequence number), taken at submission. Its resources (endpoints with
// their channels) belong to (group, sequence modulo kSlots): an operation waits for no other one's resources
// but those of number - kSlots.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/operation.hpp"
#include "runtime/scheduler/plan.hpp"

namespace tutti {

struct PeerAddress {
  Transport* transport = nullptr;  // one of the engine's
  std::vector<std::byte> address;
};

class GroupContext {
 public:
  static constexpr std::uint32_t kSlots = 4;

  struct Options {
    std::uint64_t context = 0;  // equal on all members, different for every group of a job
    std::uint32_t rank = 0;
    std::vector<PeerAddress> peers;  // by rank; the own entry is unused
    std::uint32_t contract = 0;      // hash of what the group agreed on; part of every fingerprint
    std::chrono::milliseconds timeout{300000};
  };
  GroupContext(Engine& engine, Options options);
  ~GroupContext();  // fails what is still under way with StatusCode::aborted and closes all endpoints
  GroupContext(const GroupContext&) = delete;
  GroupContext& operator=(const GroupContext&) = delete;

  Engine& engine() { return engine_; }
  std::uint32_t rank() const { return options_.rank; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(options_.peers.size()); }
  std::uint64_t context() const { return options_.context; }
  std::chrono::milliseconds timeout() const { return options_.timeout; }

  // Starts an operation and runs it inline until it would block. The same plan object must be given for equal
  // signatures and must outlive the operation (plan cache). Errors, nothing started: the group's failure;
  // invalid_argument when two threads submit to one group at once.
  Result<WorkRef> submit(std::shared_ptr<const Plan> plan, const Call& call);

  // The word (fingerprint.hpp) of a collective that this rank has submitted, or 0 if it has not, or so many
  // later ones that it is forgotten. A rank that got through a mismatched call can so be asked about it. Any
  // thread.
  std::uint64_t submitted_word(std::uint32_t sequence) const;

  // Fails the group: every pending and later operation completes with `cause`. The first cause wins. Any
  // thread.
  void fail(const Status& cause);
  Status failure() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend class Operation;

  // Operations with these resources, one at a time in order of submission.
  struct Slot {
    Operation* head = nullptr;  // the one that runs; linked through Operation::next_in_slot
    Operation* tail = nullptr;
  };

  Endpoint* endpoint(std::uint32_t slot, std::uint32_t peer, Status* status);
  Result<WorkRef> submit_exclusively(std::shared_ptr<const Plan> plan, const Call& call);
  Operation* take_operation();
  void enqueue(Slot& slot, Operation& operation);
  void on_complete(Operation& operation);
  void close_endpoints();
  // Slot index of an operation: collectives use 0..kSlots-1; send and recv to a peer their own two after
  // those.
  std::uint32_t slot_of(const Call& call, std::uint32_t sequence) const;

  static constexpr std::size_t kRemembered = 64;

  Engine& engine_;
  Options options_;
  std::array<std::atomic<std::uint64_t>, kRemembered> submitted_words_{};  // by sequence modulo kRemembered
  std::atomic<bool> is_submitting_{false};
  std::uint32_t next_sequence_ = 1;
  std::vector<std::uint32_t> next_message_;  // send_recv sequence numbers, by slot
  std::vector<Slot> slots_;
  std::vector<std::vector<std::unique_ptr<Endpoint>>>
      endpoints_;  // by context slot (kSlots, then one for send_recv), peer
  std::shared_ptr<OperationPool> pool_;
  std::atomic<bool> has_failed_{false};
  mutable std::mutex failure_mutex_;
  Status failure_;
};

}  // namespace tutti

// The control thread of every rank: passes frames up to rank 0 and down from it, and leads its node where it
// was the first to try. Knows no meaning of the messages it passes on.
//
// Ranks on the node of rank 0 (or in its network namespace) are connected to rank 0; on every other node one
// rank listens for the others and alone is connected to rank 0. What it passes up for them travels together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/group/control_channel.hpp"
#include "runtime/group/control_guests.hpp"
#include "runtime/group/control_root.hpp"
#include "runtime/group/control_uplink.hpp"

namespace tutti {

class ControlTree final : public ControlChannel, private ControlGuests::Owner, private ControlRouter {
 public:
  ControlTree(const ControlOptions& options, Doors doors);
  ~ControlTree() override { stop_thread(); }
  std::string remote_address() override {
    const std::lock_guard lock(remote_mutex_);
    return remote_;
  }

 private:
  struct Batch {
    EntriesPayload payload;
    Clock::time_point until;
  };

  void run() override;
  bool begin();
  Status listen(const std::string& name);
  void try_to_lead();
  void find_root();
  void poll_once();
  Clock::time_point next_limit() const;
  void check_deadline();
  void end_start(const Status& status);
  void say_goodbye();
  bool is_orphan() const { return !root_ && uplink_->stage() == ControlUplink::Stage::over; }

  // From below: of a guest, or our own.
  Status check(const MemberClaim& claim) override;
  void on_joined(Guest& guest) override;
  void on_frame(Guest& guest, Frame frame) override;
  void on_lost(Guest& guest, const Status& why) override;
  void on_frame_from_below(Frame frame);
  void on_arrived(Guest& guest, const ArrivedPayload& payload);
  void on_gone(int rank, bool is_dead, const std::string& text);
  void lose_below(Guest& guest, bool is_dead, const std::string& text);
  void add_to_batch(EntriesPayload payload);
  void pass_batches_up();
  void pass_up(Frame frame);
  std::size_t ranks_here() const;
  void note_remote(std::string address) {
    const std::lock_guard lock(remote_mutex_);
    if (remote_.empty()) remote_ = std::move(address);
  }

  // From above.
  void on_frame_from_above(const Frame& frame);
  void on_parent_lost(const Status& why);
  void send_to(int rank, const Frame& frame) override;
  void send_to_all(const Frame& frame) override;

  const MemberClaim claim_;
  std::optional<ControlRoot> root_;      // rank 0
  std::optional<ControlUplink> uplink_;  // all others
  ControlGuests guests_;
  Doors doors_;                // until they are in use
  std::vector<Guest*> below_;  // by rank: the guest that leads there
  std::map<std::uint64_t, Batch> batches_;
  std::vector<MemberClaim> unannounced_;  // joined here before we had joined ourselves
  Clock::time_point lead_at_{};
  bool may_lead_ = false;
  bool must_find_root_ = false;  // leads, and does not know yet where rank 0 may be
  std::string search_trouble_;
  bool is_ready_ = false;
  bool is_over_ = false;
  std::optional<Clock::time_point>
      asked_until_;  // the deadline has passed and rank 0 was asked who is missing
  std::string missing_;
  std::mutex remote_mutex_;
  std::string remote_;
};

}  // namespace tutti

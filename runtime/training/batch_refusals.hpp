// Batches of which this rank has refused a tensor, until all ranks know. Knows no other rank and no lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/training/tensor_request.hpp"

namespace tutti {

// A refusal takes the place of the batch that this rank would have submitted: rank 0 matches the first refusal or batch
// of a name on one rank with the first on each other. So refusals and batches of one name are announced one by one.
class BatchRefusals {
 public:
  explicit BatchRefusals(std::uint32_t rank) : rank_(rank) {}

  // `is_behind`: the batch of this name that is under way is complete here, so the next one is refused.
  void add(const std::string& batch, std::string reason, bool is_behind);

  // Batches may have ended here: is this one still under way?
  void end_batches(const std::function<bool(const std::string& batch)>& is_under_way);
  // Those whose turn it is, each once.
  std::vector<BatchRefusal> take_due();
  // Is a refusal to be settled before tensors of this batch are announced?
  bool holds(const std::string& batch) const;
  // Has it been announced, and is not settled?
  bool is_announced(const std::string& batch) const;
  // All ranks know the refusal that this rank has announced, if any.
  void settle(const std::string& batch);

 private:
  struct Batch {
    std::deque<std::string> due;     // reasons, in front of the batch that is under way
    std::deque<std::string> behind;  // reasons, behind it
    bool is_announced = false;       // the first one that is due
  };
  const std::uint32_t rank_;
  std::map<std::string, Batch> batches_;
};

}  // namespace tutti

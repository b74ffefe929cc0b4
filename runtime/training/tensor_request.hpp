// A named tensor as one rank announces it to the others, and how announcements travel.
// Knows no buffer, no group and no order of execution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/fusion_tuning.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"
#include "runtime/training/tensor_event.hpp"

namespace tutti {

// The longest name and the most dimensions that a request may have.
inline constexpr std::size_t kMaxTensorNameBytes = 4096;
inline constexpr std::size_t kMaxTensorDimensions = 64;

// The properties of a tensor that must be equal on all ranks.
struct TensorSignature {
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  bool is_device = false;
  std::int32_t root = -1;  // of broadcast; -1 elsewhere
  std::int32_t priority = 0;
  double prescale = 1;              // each input is multiplied by it
  double postscale = 1;             // the result is multiplied by it
  std::optional<Dtype> wire_dtype;  // of messages; unset: as the group is set
  bool has_feedback = false;        // residuals.hpp
  // Without the first dimension where ranks may differ in it (allgather, alltoall).
  std::vector<std::uint64_t> shape;
  // Tensors of one batch are communicated together or not at all. Empty: a batch of its own.
  std::string batch;
  std::uint32_t batch_size = 0;

  bool operator==(const TensorSignature&) const = default;
};

// May the first dimension differ between ranks?
constexpr bool has_free_first_dimension(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall;
}

struct TensorRequest {
  std::string name;
  TensorSignature signature;
  // Of allgather: the first dimension, which ranks may differ in. Row counts of an alltoall are not announced: rank 0
  // would tell each rank those of all pairs. Ranks exchange them once the tensor is ready.
  std::uint64_t rows = 0;

  bool operator==(const TensorRequest&) const = default;
};

// Elements of the part that all ranks agree on: the product of `shape`, 1 of an empty one.
std::uint64_t element_count(const TensorSignature& signature);

// "allreduce of f32[64,3,7,7], sum"
std::string describe(const TensorSignature& signature);
// The first difference for people: "shape [3,4] and [3,5]". Empty: they are equal.
std::string describe_difference(const TensorSignature& a, const TensorSignature& b);

// A request and the ranks that made it, in ascending order.
struct RequestOfRanks {
  TensorRequest request;
  std::vector<std::uint32_t> ranks;

  bool operator==(const RequestOfRanks&) const = default;
};

// Ranks that have refused a tensor of a batch, and so the batch.
struct BatchRefusal {
  std::string batch, reason;
  std::vector<std::uint32_t> ranks;

  bool operator==(const BatchRefusal&) const = default;
};

// The message that goes up the tree in one cycle. Equal requests of several ranks are one entry.
struct RequestBatch {
  std::vector<RequestOfRanks> requests;
  std::vector<std::uint32_t> joined_ranks;       // that have no more tensors, since this cycle
  std::vector<std::uint32_t> ranks_with_device;  // those of them that can give zeros on a GPU
  std::vector<TensorEvent> events;               // for the timeline of rank 0
  std::vector<BatchRefusal> refusals;

  bool operator==(const RequestBatch&) const = default;
};

std::string encode(const RequestBatch& batch);
// False for anything that encode() cannot have written for a group of `rank_count`.
bool decode(std::string_view bytes, std::uint32_t rank_count, RequestBatch& batch);

// Adds `more` to `batch`. Entries keep the order in which they first came.
void merge(RequestBatch& batch, RequestBatch more);

// A decision of rank 0: a tensor that all ranks may communicate now, or the reason why not.
struct TensorResponse {
  std::string name;
  TensorSignature signature;
  // Of allgather, by rank. Empty elsewhere, and of a failure.
  std::vector<std::uint64_t> rows;
  StatusCode code = StatusCode::ok;
  std::string message;  // of a failure
  std::int32_t peer = -1;

  bool operator==(const TensorResponse&) const = default;
};

struct ResponseList {
  std::vector<TensorResponse> responses;
  std::int32_t last_joined_rank = -1;        // all ranks have joined, this one at last; -1: not yet
  std::vector<std::string> refused_batches;  // refusals that all ranks know now
  std::optional<FusionTuning> fusion;        // the setting from this cycle on, if it changes

  bool operator==(const ResponseList&) const = default;
};

std::string encode(const ResponseList& list);
bool decode(std::string_view bytes, std::uint32_t rank_count, ResponseList& list);

}  // namespace tutti

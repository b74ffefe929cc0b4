// Texts and bytes of announcements. See tensor_request.hpp.
#include "runtime/training/tensor_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "runtime/base/byte_fields.hpp"

namespace tutti {
namespace {

// Lists and texts of a frame cannot be longer than the frame, so that a length that lies allocates nothing.
template <class T>
bool get_list(ByteReader& reader, std::vector<T>& list) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count > reader.left_bytes() / sizeof(T)) return false;
  list.resize(count);
  return std::all_of(list.begin(), list.end(), [&](T& value) { return reader.get(value); });
}

template <class T>
void put_list(ByteWriter& writer, const std::vector<T>& list) {
  writer.put(static_cast<std::uint32_t>(list.size()));
  for (const T value : list) writer.put(value);
}

// 0: an unset dtype.
constexpr std::uint8_t kFeedbackBit = 0x80;
std::uint8_t wire_code(const TensorSignature& signature) {
  const unsigned dtype = signature.wire_dtype ? static_cast<unsigned>(*signature.wire_dtype) + 1 : 0;
  return static_cast<std::uint8_t>(dtype | (signature.has_feedback ? kFeedbackBit : 0U));
}

bool get_wire_dtype(ByteReader& reader, TensorSignature& signature) {
  std::uint8_t code = 0;
  if (!reader.get(code)) return false;
  signature.has_feedback = (code & kFeedbackBit) != 0;
  code &= kFeedbackBit - 1U;
  if (code > kDtypeCount) return false;
  signature.wire_dtype.reset();
  if (code != 0) signature.wire_dtype = static_cast<Dtype>(code - 1);
  return true;
}

std::string wire_text(const TensorSignature& signature) {
  return signature.wire_dtype ? std::string(to_string(*signature.wire_dtype)) : "the default";
}

std::string describe_wire_difference(const TensorSignature& a, const TensorSignature& b) {
  const auto feedback = [](const TensorSignature& signature) {
    return signature.has_feedback ? "on" : "off";
  };
  if (a.wire_dtype != b.wire_dtype)
    return fmt::format("dtype on the wire {} and {}", wire_text(a), wire_text(b));
  if (a.has_feedback != b.has_feedback)
    return fmt::format("error feedback {} and {}", feedback(a), feedback(b));
  return {};
}

void put(ByteWriter& writer, const TensorSignature& signature) {
  writer.put(signature.collective);
  writer.put(signature.dtype);
  writer.put(signature.op);
  writer.put(static_cast<std::uint8_t>(signature.is_device));
  writer.put(signature.root);
  writer.put(signature.priority);
  writer.put(signature.prescale);
  writer.put(signature.postscale);
  writer.put(wire_code(signature));
  put_list(writer, signature.shape);
  writer.put_text(signature.batch);
  writer.put(signature.batch_size);
}

bool get_kinds(ByteReader& reader, TensorSignature& signature) {
  std::uint8_t collective = 0, dtype = 0, op = 0, is_device = 0;
  if (!reader.get(collective) || !reader.get(dtype) || !reader.get(op) || !reader.get(is_device))
    return false;
  if (collective >= kCollectiveCount || dtype >= kDtypeCount || op >= kOpCount || is_device > 1) return false;
  signature.collective = static_cast<Collective>(collective);
  signature.dtype = static_cast<Dtype>(dtype);
  signature.op = static_cast<Op>(op);
  signature.is_device = is_device == 1;
  return true;
}

bool get(ByteReader& reader, std::uint32_t rank_count, TensorSignature& signature) {
  return get_kinds(reader, signature) && reader.get(signature.root) && signature.root >= -1 &&
         signature.root < static_cast<std::int32_t>(rank_count) && reader.get(signature.priority) &&
         reader.get(signature.prescale) && reader.get(signature.postscale) &&
         get_wire_dtype(reader, signature) && get_list(reader, signature.shape) &&
         signature.shape.size() <= kMaxTensorDimensions && reader.get_text(signature.batch) &&
         signature.batch.size() <= kMaxTensorNameBytes && reader.get(signature.batch_size);
}

// Of a tensor or a batch.
bool get_name(ByteReader& reader, std::string& name) {
  return reader.get_text(name) && !name.empty() && name.size() <= kMaxTensorNameBytes;
}

bool get_end(ByteReader& reader, std::uint32_t rank_count, ResponseList& list) {
  std::uint32_t count = 0;
  if (!reader.get(count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!get_name(reader, list.refused_batches.emplace_back())) return false;
  }
  if (!reader.get(list.last_joined_rank) || list.last_joined_rank < -1 ||
      list.last_joined_rank >= static_cast<std::int32_t>(rank_count))
    return false;
  if (reader.is_at_end()) return true;
  FusionTuning& fusion = list.fusion.emplace();
  return reader.get(fusion.bytes) && reader.get(fusion.cycle_us) &&
         fusion.cycle_us <= kMostCycleMicroseconds && reader.is_at_end();
}

void put(ByteWriter& writer, const TensorEvent& event) {
  writer.put_text(event.tensor);
  writer.put(event.collective);
  writer.put(event.phase);
  writer.put(event.rank);
  writer.put(static_cast<std::int64_t>(event.time.time_since_epoch().count()));
}

bool get(ByteReader& reader, std::uint32_t rank_count, TensorEvent& event) {
  std::uint8_t collective = 0, phase = 0;
  std::int64_t time = 0;
  if (!get_name(reader, event.tensor) || !reader.get(collective) || !reader.get(phase) ||
      !reader.get(event.rank) || !reader.get(time))
    return false;
  if (collective >= kCollectiveCount || phase >= kTensorPhaseCount || event.rank >= rank_count) return false;
  event.collective = static_cast<Collective>(collective);
  event.phase = static_cast<TensorPhase>(phase);
  event.time = SteadyClock::time_point(SteadyClock::duration(time));
  return true;
}

// As runs of neighbours, so that a request that all ranks made costs 8 bytes whatever their number.
void put_ranks(ByteWriter& writer, const std::vector<std::uint32_t>& ranks) {
  std::vector<std::uint32_t> runs;  // first, last, first, last, ...
  for (const std::uint32_t rank : ranks) {
    if (!runs.empty() && runs.back() + 1 == rank) {
      runs.back() = rank;
    } else {
      runs.insert(runs.end(), {rank, rank});
    }
  }
  put_list(writer, runs);
}

bool get_ranks(ByteReader& reader, std::uint32_t rank_count, std::vector<std::uint32_t>& ranks) {
  std::vector<std::uint32_t> runs;
  if (!get_list(reader, runs) || runs.size() % 2 != 0) return false;
  ranks.clear();
  for (std::size_t i = 0; i < runs.size(); i += 2) {
    // Runs that touch would be one: every set of ranks has one encoding.
    const bool is_ascending = i == 0 || runs[i] > runs[i - 1] + 1;
    if (!is_ascending || runs[i] > runs[i + 1] || runs[i + 1] >= rank_count) return false;
    for (std::uint32_t rank = runs[i]; rank <= runs[i + 1]; ++rank) ranks.push_back(rank);
  }
  return true;
}

// Are row counts of each rank announced?
bool has_rows(const TensorSignature& signature) { return signature.collective == Collective::allgather; }

std::string shape_text(const TensorSignature& signature) {
  return fmt::format("[{}{}]", has_free_first_dimension(signature.collective) ? "*," : "",
                     fmt::join(signature.shape, ","));
}

}  // namespace

std::uint64_t element_count(const TensorSignature& signature) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : signature.shape) count *= extent;
  return count;
}

std::string describe(const TensorSignature& signature) {
  std::string text = fmt::format("{} of {}{}", to_string(signature.collective), to_string(signature.dtype),
                                 shape_text(signature));
  if (is_reducing(signature.collective)) text += fmt::format(", {}", to_string(signature.op));
  if (signature.root >= 0) text += fmt::format(" from rank {}", signature.root);
  if (signature.is_device) text += " on a GPU";
  if (signature.wire_dtype) text += fmt::format(", {} on the wire", to_string(*signature.wire_dtype));
  return text;
}

std::string describe_difference(const TensorSignature& a, const TensorSignature& b) {
  if (a.collective != b.collective)
    return fmt::format("collective {} and {}", to_string(a.collective), to_string(b.collective));
  if (a.dtype != b.dtype) return fmt::format("dtype {} and {}", to_string(a.dtype), to_string(b.dtype));
  if (a.shape != b.shape) return fmt::format("shape {} and {}", shape_text(a), shape_text(b));
  if (a.op != b.op) return fmt::format("op {} and {}", to_string(a.op), to_string(b.op));
  if (a.root != b.root) return fmt::format("root {} and {}", a.root, b.root);
  if (a.is_device != b.is_device)
    return fmt::format("memory of {} and of {}", a.is_device ? "a GPU" : "the host",
                       b.is_device ? "a GPU" : "the host");
  if (a.priority != b.priority) return fmt::format("priority {} and {}", a.priority, b.priority);
  if (a.prescale != b.prescale)
    return fmt::format("factor before the reduction {} and {}", a.prescale, b.prescale);
  if (a.postscale != b.postscale)
    return fmt::format("factor after the reduction {} and {}", a.postscale, b.postscale);
  if (std::string wire = describe_wire_difference(a, b); !wire.empty()) return wire;
  if (a.batch != b.batch) return fmt::format("batch \"{}\" and \"{}\"", a.batch, b.batch);
  if (a.batch_size != b.batch_size) return fmt::format("batch of {} and of {}", a.batch_size, b.batch_size);
  return {};
}

namespace {

void put(ByteWriter& writer, const TensorRequest& request) {
  writer.put_text(request.name);
  put(writer, request.signature);
  writer.put(request.rows);
}

// Equal for equal requests.
std::string encode(const TensorRequest& request) {
  ByteWriter writer;
  put(writer, request);
  return writer.take();
}

}  // namespace

std::string encode(const RequestBatch& batch) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(batch.requests.size()));
  for (const auto& [request, ranks] : batch.requests) {
    put(writer, request);
    put_ranks(writer, ranks);
  }
  put_ranks(writer, batch.joined_ranks);
  put_ranks(writer, batch.ranks_with_device);
  writer.put(static_cast<std::uint32_t>(batch.events.size()));
  for (const TensorEvent& event : batch.events) put(writer, event);
  writer.put(static_cast<std::uint32_t>(batch.refusals.size()));
  for (const BatchRefusal& refusal : batch.refusals) {
    writer.put_text(refusal.batch);
    writer.put_text(refusal.reason);
    put_ranks(writer, refusal.ranks);
  }
  return writer.take();
}

// More than 15 decisions because each field is checked as it is read.
bool decode(std::string_view bytes, std::uint32_t rank_count, RequestBatch& batch) {
  ByteReader reader(bytes);
  std::uint32_t count = 0;
  if (!reader.get(count)) return false;
  batch = {};
  for (std::uint32_t i = 0; i < count; ++i) {
    RequestOfRanks& entry = batch.requests.emplace_back();
    if (!get_name(reader, entry.request.name) || !get(reader, rank_count, entry.request.signature) ||
        !reader.get(entry.request.rows) || !get_ranks(reader, rank_count, entry.ranks) || entry.ranks.empty())
      return false;
    if (entry.request.rows != 0 && !has_rows(entry.request.signature)) return false;
  }
  if (!get_ranks(reader, rank_count, batch.joined_ranks) ||
      !get_ranks(reader, rank_count, batch.ranks_with_device) || !reader.get(count))
    return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!get(reader, rank_count, batch.events.emplace_back())) return false;
  }
  if (!reader.get(count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    BatchRefusal& refusal = batch.refusals.emplace_back();
    if (!get_name(reader, refusal.batch) || !reader.get_text(refusal.reason) ||
        !get_ranks(reader, rank_count, refusal.ranks) || refusal.ranks.empty())
      return false;
  }
  return reader.is_at_end();
}

void merge(RequestBatch& batch, RequestBatch more) {
  // Of an allgather each rank may have another request, so a name says too little.
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < batch.requests.size(); ++i) known.emplace(encode(batch.requests[i].request), i);
  const auto unite = [](std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& ranks) {
    std::vector<std::uint32_t> both;
    both.reserve(into.size() + ranks.size());
    std::set_union(into.begin(), into.end(), ranks.begin(), ranks.end(), std::back_inserter(both));
    into = std::move(both);
  };
  std::vector<RequestOfRanks> unseen;
  for (RequestOfRanks& entry : more.requests) {
    const auto found = known.find(encode(entry.request));
    if (found == known.end()) {
      unseen.push_back(std::move(entry));
    } else {
      unite(batch.requests[found->second].ranks, entry.ranks);
    }
  }
  batch.requests.insert(batch.requests.end(), std::make_move_iterator(unseen.begin()),
                        std::make_move_iterator(unseen.end()));
  unite(batch.joined_ranks, more.joined_ranks);
  unite(batch.ranks_with_device, more.ranks_with_device);
  for (BatchRefusal& refusal : more.refusals) {
    const auto equal = std::find_if(batch.refusals.begin(), batch.refusals.end(), [&](const auto& other) {
      return other.batch == refusal.batch && other.reason == refusal.reason;
    });
    if (equal == batch.refusals.end()) {
      batch.refusals.push_back(std::move(refusal));
    } else {
      unite(equal->ranks, refusal.ranks);
    }
  }
  batch.events.insert(batch.events.end(), std::make_move_iterator(more.events.begin()),
                      std::make_move_iterator(more.events.end()));
}

std::string encode(const ResponseList& list) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(list.responses.size()));
  for (const TensorResponse& response : list.responses) {
    writer.put_text(response.name);
    put(writer, response.signature);
    put_list(writer, response.rows);
    writer.put(response.code);
    writer.put_text(response.message);
    writer.put(response.peer);
  }
  writer.put(static_cast<std::uint32_t>(list.refused_batches.size()));
  for (const std::string& batch : list.refused_batches) writer.put_text(batch);
  writer.put(list.last_joined_rank);
  if (list.fusion) {
    writer.put(list.fusion->bytes);
    writer.put(list.fusion->cycle_us);
  }
  return writer.take();
}

bool decode(std::string_view bytes, std::uint32_t rank_count, ResponseList& list) {
  ByteReader reader(bytes);
  std::uint32_t count = 0;
  if (!reader.get(count)) return false;
  list = {};
  for (std::uint32_t i = 0; i < count; ++i) {
    TensorResponse& response = list.responses.emplace_back();
    std::uint8_t code = 0;
    if (!get_name(reader, response.name) || !get(reader, rank_count, response.signature) ||
        !get_list(reader, response.rows) || !reader.get(code) || !reader.get_text(response.message) ||
        !reader.get(response.peer))
      return false;
    if (code > static_cast<std::uint8_t>(StatusCode::internal)) return false;
    response.code = static_cast<StatusCode>(code);
    const bool is_gathered = response.code == StatusCode::ok && has_rows(response.signature);
    if (response.rows.size() != (is_gathered ? rank_count : 0)) return false;
  }
  return get_end(reader, rank_count, list);
}

}  // namespace tutti

// Passes over the data that go to several places, by nt_stores, or piece by piece.
#include "runtime/scheduler/epoch_steps.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/relax.hpp"

namespace tutti {
namespace {

enum class StoreWay : std::uint8_t { cached, streamed, chosen };  // chosen: by StagingStores

class Pass {
 public:
  Pass(std::span<const ResolvedStep> stores, const PassSettings& settings)
      : settings_(settings),
        bytes_(stores[0].bytes),
        source_count_(stores[0].source_count),
        store_count_(static_cast<std::uint32_t>(stores.size())),
        is_sum_(stores[0].kind == LoweredStep::Kind::reduce),
        is_staging_streamed_(settings.stores->is_streaming()) {
    const ResolvedPlace* const sources = settings.epoch->sources.data() + stores[0].first_source;
    for (std::uint32_t i = 0; i < source_count_; ++i) from_[i] = sources[i].in(settings.origins);
    for (std::uint32_t i = 0; i < store_count_; ++i) add_store(stores[i], i);
    if (!is_sum_) return;
    while (sum_at_ < store_count_ && is_past_caches(ways_[sum_at_])) ++sum_at_;
    if (may_stream()) stream_ = settings.stream_kernel;
  }

  bool run(std::size_t* offset, bool is_shared) const {
    if (is_shared) return share(offset);
    alignas(64) std::array<std::byte, LoweredLimits::kMostPieceBytes> spare;
    const std::size_t piece_bytes = this->piece_bytes(), first = *offset;
    for (std::size_t at = first; at < bytes_; at += piece_bytes) {
      if (at - first >= kTurnBytes && is_wanted()) {
        *offset = at;
        return false;
      }
      run_piece(at, std::min(piece_bytes, bytes_ - at), spare.data(), true);
    }
    *offset = 0;
    return true;
  }

 private:
  // With the rank's helpers. No result depends on where a pass is cut: kernels work element by element.
  bool share(std::size_t* offset) const {
    const auto run_part = [this](std::size_t first, std::size_t length, bool is_caller) {
      alignas(64) std::array<std::byte, LoweredLimits::kMostPieceBytes> spare;
      const std::size_t piece_bytes = this->piece_bytes();
      for (std::size_t at = 0; at < length; at += piece_bytes)
        run_piece(first + at, std::min(piece_bytes, length - at), spare.data(), is_caller);
    };
    const std::size_t end = settings_.helpers->run(*offset, bytes_, settings_.wanting, run_part);
    *offset = end < bytes_ ? end : 0;
    return end == bytes_;
  }

  // Cached stores come first where the call streams.
  void add_store(const ResolvedStep& store, std::uint32_t index) {
    std::byte* const at = store.at.in(settings_.origins);
    StoreWay way = store.is_by_stores ? StoreWay::chosen : StoreWay::cached;
    if (settings_.streams) {
      if (is_sum_ && way == StoreWay::chosen)
        way = settings_.stores->is_streaming() ? StoreWay::streamed : StoreWay::cached;
      // In place, the lines are in this core's cache already; nt_stores would have to evict them.
      const bool is_warm =
          (store.at.origin == ResolvedPlace::output && settings_.is_over_input) ||
          std::find(from_.begin(), from_.begin() + source_count_, at) != from_.begin() + source_count_;
      if (!store.at.is_in_own_area() && !is_warm) way = StoreWay::streamed;
    }
    at_[index] = at;
    ways_[index] = way;
    if (!settings_.streams || way != StoreWay::cached) return;
    std::swap(at_[index], at_[cached_count_]);
    std::swap(ways_[index], ways_[cached_count_++]);
  }

  bool is_past_caches(StoreWay way) const {
    return way == StoreWay::streamed || (way == StoreWay::chosen && settings_.stores->is_streaming());
  }

  // May one kernel compute the sum and store it everywhere at once?
  bool may_stream() const {
    if (!settings_.streams) return false;
    const std::span streamed(at_.data() + cached_count_, store_count_ - cached_count_);
    // In place. With a store into the staging buffer, a second pass over pieces was up to 10 % faster. Without
    // one, a single pass was up to a quarter faster.
    if (streamed.empty()) return settings_.is_direct && store_count_ > 1;
    const auto in_line = [](const std::byte* at) {
      return reinterpret_cast<std::uintptr_t>(at) % kLineBytes;
    };
    const auto is_elsewhere = [&](const std::byte* at) { return in_line(at) != in_line(streamed[0]); };
    return in_line(streamed[0]) % settings_.element_bytes == 0 &&
           std::ranges::none_of(streamed, is_elsewhere);
  }

  std::size_t piece_bytes() const {
    if (stream_ != nullptr) return kTurnBytes;
    const bool is_streamed = settings_.streams && cached_count_ < store_count_;
    return is_streamed ? settings_.limits->streamed_piece_bytes : settings_.limits->piece_bytes;
  }

  bool is_wanted() const {
    return settings_.wanting != nullptr && settings_.wanting->load(std::memory_order_relaxed) != 0;
  }

  void run_piece(std::size_t offset, std::size_t length, std::byte* spare, bool is_caller) const {
    std::array<const void*, 256> sources;
    for (std::uint32_t i = 0; i < source_count_; ++i) sources[i] = from_[i] + offset;
    const std::size_t count = length / settings_.element_bytes;
    if (stream_ != nullptr) {
      std::array<void*, 256> places;
      for (std::uint32_t i = 0; i < store_count_; ++i) places[i] = at_[i] + offset;
      return stream_(places.data(), store_count_, cached_count_, sources.data(), source_count_, count);
    }
    const std::byte* value = from_[0] + offset;
    if (is_sum_) {
      std::byte* const sum = sum_at_ == store_count_ ? spare : at_[sum_at_] + offset;
      settings_.kernel(nullptr, sum, sources.data(), source_count_, count);
      value = sum;
    }
    for (std::uint32_t i = 0; i < store_count_; ++i) {
      if (is_sum_ && i == sum_at_) continue;
      store(is_caller ? ways_[i] : helper_way(ways_[i]), at_[i] + offset, value, length);
    }
  }

  // StagingStores belong to the caller, who times its own copies alone.
  StoreWay helper_way(StoreWay way) const {
    if (way != StoreWay::chosen) return way;
    return is_staging_streamed_ ? StoreWay::streamed : StoreWay::cached;
  }

  void store(StoreWay way, std::byte* to, const std::byte* value, std::size_t length) const {
    switch (way) {
      case StoreWay::cached:
        return copy_bytes(to, value, length);
      case StoreWay::streamed:
        return copy_bytes_streaming(to, value, length);
      case StoreWay::chosen:
        return settings_.stores->copy(to, value, length);
    }
  }

  const PassSettings& settings_;
  const std::size_t bytes_;
  const std::uint32_t source_count_, store_count_;
  const bool is_sum_, is_staging_streamed_;
  std::uint32_t cached_count_ = 0;
  std::uint32_t sum_at_ = 0;  // a sum is computed in the first place that is written through the caches
  StreamKernelFn stream_ = nullptr;
  std::array<const std::byte*, 256> from_;
  std::array<std::byte*, 256> at_;
  std::array<StoreWay, 256> ways_;
};

}  // namespace

bool run_pass(std::span<const ResolvedStep> stores, const PassSettings& settings, std::size_t* offset) {
  const ResolvedStep& step = stores[0];
  const bool is_one_copy = step.kind == LoweredStep::Kind::copy && stores.size() == 1;
  const bool is_shared = settings.should_share(step);
  if (!is_shared && *offset == 0 && is_one_copy && step.is_by_stores && !settings.streams &&
      step.bytes < kInterruptibleBytes) {
    const ResolvedPlace& source = settings.epoch->sources[step.first_source];
    settings.stores->copy(step.at.in(settings.origins), source.in(settings.origins), step.bytes);
    return true;
  }
  return Pass(stores, settings).run(offset, is_shared);
}

}  // namespace tutti

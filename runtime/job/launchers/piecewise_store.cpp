// Cuts long values into pieces that a key-value space takes. Knows no protocol.
#include "runtime/job/launchers/piecewise_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "runtime/job/launchers/pmi_text.hpp"
#include "runtime/job/launchers/rank_variables.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

// A launcher answers at once, or it is gone; this only bounds the wait.
constexpr auto kPutPatience = 60s;
constexpr std::size_t kMaxPieces = 1000;
constexpr std::size_t kNumberBytes = 5;  // "999:" in front of the first piece, ".999" behind a key

// Key K holds "<pieces>:<first piece>", key K.<i> the piece i.
class PiecewiseStore final : public Store {
 public:
  explicit PiecewiseStore(std::shared_ptr<KeyValueSpace> space) : space_(std::move(space)) {}

  Status put(const std::string& key, const std::string& value) override {
    const Clock::time_point deadline = Clock::now() + kPutPatience;
    const std::string name = name_of(key), text = escape_pmi(value);
    const std::size_t piece = space_->value_limit_bytes() - kNumberBytes;
    const std::size_t count = std::max<std::size_t>(1, (text.size() + piece - 1) / piece);
    if (count >= kMaxPieces) {
      return invalid_argument(fmt::format("{}: a value of {} bytes is too long", key, value.size()));
    }
    // The first piece last: where values are visible at once, a reader of it finds the others.
    for (std::size_t i = count - 1; i > 0; --i) {
      TUTTI_RETURN_IF_ERROR(space_->put(piece_name(name, i), text.substr(i * piece, piece), deadline));
    }
    return space_->put(name, fmt::format("{}:{}", count, text.substr(0, piece)), deadline);
  }

  Status commit(Clock::time_point deadline) override { return space_->fence(deadline); }

  Result<std::string> get(const std::string& key, Clock::time_point deadline) override {
    const std::string name = name_of(key);
    const Result<std::string> first = wait_for(key, name, deadline);
    if (!first) return first.status();
    std::size_t count = 0;
    const char* const end_of_text = first->data() + first->size();
    const auto [end, error] = std::from_chars(first->data(), end_of_text, count);
    if (error != std::errc{} || end == end_of_text || *end != ':' || count == 0 || count >= kMaxPieces) {
      return invalid_argument(fmt::format("{}: {} was not written by tutti", space_->describe(), key));
    }
    std::string text(end + 1, end_of_text);
    for (std::size_t i = 1; i < count; ++i) {
      const Result<std::string> piece = wait_for(key, piece_name(name, i), deadline);
      if (!piece) return piece.status();
      text += *piece;
    }
    return unescape_pmi(text);
  }

  std::string describe() const override { return space_->describe(); }

 private:
  std::string name_of(const std::string& key) const {
    std::string name = escape_pmi(key);
    if (name.size() + kNumberBytes > space_->key_limit_bytes()) name = make_job("tutti", key);
    return name;
  }

  static std::string piece_name(const std::string& name, std::size_t index) {
    return fmt::format("{}.{}", name, index);
  }

  Result<std::string> wait_for(const std::string& key, const std::string& name, Clock::time_point deadline) {
    for (auto pause = 1ms;; pause = std::min(pause * 2, 64ms)) {
      Result<std::optional<std::string>> found = space_->find(name, deadline);
      if (!found) return found.status();
      if (found->has_value()) return **std::move(found);
      if (Clock::now() + pause >= deadline) {
        return Status(StatusCode::timeout,
                      fmt::format("{}: no rank has put {} in time", space_->describe(), key));
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::shared_ptr<KeyValueSpace> space_;
};

}  // namespace

Status explain_fence(const Status& status, const std::string& space, int rank, int size) {
  if (status.code() != StatusCode::timeout) return status;
  return Status(
      StatusCode::timeout,
      fmt::format("{}: rank {} is in the fence, but not all of the {} ranks have come; PMI does not "
                  "say who is missing",
                  space, rank, size));
}

std::shared_ptr<Store> make_piecewise_store(std::shared_ptr<KeyValueSpace> space) {
  return std::make_shared<PiecewiseStore>(std::move(space));
}

}  // namespace tutti::detail

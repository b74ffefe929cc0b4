// Status and Result: error reporting inside tutti, without exceptions. Knows nothing of groups, transports or
// logging. The function that detects an error logs it; callers only propagate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/types.hpp"

namespace tutti {

// "ok", "invalid argument", ...: stable English words for messages and JSON.
std::string_view to_string(StatusCode code);

struct RankVerdict;  // verdict.hpp

// A code, a message for people and, where they are known, the rank it is about and verdicts about ranks.
// Success costs one null pointer; copying a failure copies the message.
class [[nodiscard]] Status {
 public:
  static constexpr int kNoPeer = -1;

  Status() = default;  // success
  Status(StatusCode code, std::string message, int peer = kNoPeer);
  Status(const Status& other) : detail_(other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool is_ok() const { return detail_ == nullptr; }
  explicit operator bool() const { return is_ok(); }
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::ok; }
  int peer() const { return detail_ ? detail_->peer : kNoPeer; }
  const std::string& message() const;
  // About the ranks that are missed, the cause first. Of a failure only; empty: it is about no missing rank.
  const std::vector<RankVerdict>& verdicts() const;
  Status with_verdicts(std::vector<RankVerdict> verdicts) const;

  // Puts `context` in front of the message ("context: message"); success stays success.
  Status with_context(std::string_view context) const;
  // "invalid argument: message (rank 3)"
  std::string to_string() const;

 private:
  struct Detail {
    StatusCode code;
    int peer;
    std::string message;
    std::shared_ptr<const std::vector<RankVerdict>> verdicts;  // null: none
  };
  std::unique_ptr<Detail> detail_;
};

// `peer`: the rank that the message names, if it names one.
Status invalid_argument(std::string message, int peer = Status::kNoPeer);
Status unsupported(std::string message, int peer = Status::kNoPeer);
Status internal_error(std::string message, int peer = Status::kNoPeer);

// A value, or the Status that explains its absence. `*result` and `->` require is_ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

namespace detail {
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const char* why);
}  // namespace detail

}  // namespace tutti

// Returns the Status of `expression` from the enclosing function if it failed.
#define TUTTI_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                   \
    if (::tutti::Status tutti_status = (expression); !tutti_status) return tutti_status; \
  } while (false)

// Checks an invariant of tutti itself, never input: prints place and reason, then aborts. Stays in release
// builds.
#define TUTTI_ASSERT(condition, why)      \
  (static_cast<bool>(condition) ? void(0) \
                                : ::tutti::detail::assertion_failed(#condition, __FILE__, __LINE__, why))

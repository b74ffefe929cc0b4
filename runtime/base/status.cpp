// Status and Result: construction, printing and the assertion handler.
#include "runtime/base/status.hpp"

#include <cstdio>
#include <cstdlib>

#include "runtime/base/verdict.hpp"

namespace tutti {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid argument";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::mismatch:
      return "mismatch";
    case StatusCode::timeout:
      return "timeout";
    case StatusCode::peer_failed:
      return "peer failed";
    case StatusCode::refused:
      return "refused";
    case StatusCode::resource_exhausted:
      return "resource exhausted";
    case StatusCode::aborted:
      return "aborted";
    case StatusCode::internal:
      return "internal error";
  }
  return "unknown status";
}

Status::Status(StatusCode code, std::string message, int peer)
    : detail_(std::make_unique<Detail>(Detail{code, peer, std::move(message), nullptr})) {
  TUTTI_ASSERT(code != StatusCode::ok, "success carries no message");
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return detail_ ? detail_->message : kEmpty;
}

const std::vector<RankVerdict>& Status::verdicts() const {
  static const std::vector<RankVerdict> kNone;
  return detail_ && detail_->verdicts ? *detail_->verdicts : kNone;
}

Status Status::with_verdicts(std::vector<RankVerdict> verdicts) const {
  Status status = *this;
  TUTTI_ASSERT(status.detail_ != nullptr, "success has no verdicts");
  status.detail_->verdicts = std::make_shared<const std::vector<RankVerdict>>(std::move(verdicts));
  return status;
}

Status Status::with_context(std::string_view context) const {
  Status status = *this;
  if (status.detail_) status.detail_->message = std::string(context) + ": " + status.detail_->message;
  return status;
}

std::string Status::to_string() const {
  if (!detail_) return "ok";
  std::string text(tutti::to_string(detail_->code));
  text += ": ";
  text += detail_->message;
  if (detail_->peer != kNoPeer) text += " (rank " + std::to_string(detail_->peer) + ")";
  return text;
}

Status invalid_argument(std::string message, int peer) {
  return Status(StatusCode::invalid_argument, std::move(message), peer);
}
Status unsupported(std::string message, int peer) {
  return Status(StatusCode::unsupported, std::move(message), peer);
}
Status internal_error(std::string message, int peer) {
  return Status(StatusCode::internal, std::move(message), peer);
}

namespace detail {

void assertion_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr,
               "tutti: broken invariant at %s:%d: %s (%s). This is a bug in tutti, please report it.\n", file,
               line, condition, why);
  std::abort();
}

}  // namespace detail
}  // namespace tutti

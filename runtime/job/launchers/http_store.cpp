// Speaks as much HTTP as a rendezvous server needs. Knows no launcher.
#include "runtime/job/launchers/http_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/job/launchers/launcher_socket.hpp"
#include "runtime/job/launchers/pmi_text.hpp"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto kPutPatience = 60s;
constexpr std::size_t kMaxLineBytes = 8192, kMaxLines = 100, kMaxBodyBytes = std::size_t{1} << 20;
constexpr std::string_view kScope = "tutti";

bool equals_in_lower_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class HttpStore final : public Store {
 public:
  explicit HttpStore(std::string address) : address_(std::move(address)) {}

  Status put(const std::string& key, const std::string& value) override {
    const Result<HttpAnswer> answer = request("PUT", key, value, Clock::now() + kPutPatience);
    if (!answer) return answer.status();
    if (answer->status / 100 == 2) return {};
    return Status(StatusCode::refused, fmt::format("{}: PUT of {}: {}", describe(), key, answer->status));
  }

  Status commit(Clock::time_point) override { return {}; }

  Result<std::string> get(const std::string& key, Clock::time_point deadline) override {
    for (auto pause = 1ms;; pause = std::min(pause * 2, 128ms)) {
      Result<HttpAnswer> answer = request("GET", key, "", deadline);
      if (!answer) return answer.status();
      if (answer->status == 200) return std::move(answer->body);
      if (answer->status != 404) {
        return Status(StatusCode::refused, fmt::format("{}: GET of {}: {}", describe(), key, answer->status));
      }
      if (Clock::now() + pause >= deadline) {
        return Status(StatusCode::timeout, fmt::format("{}: rank 0 has not put {} in time", describe(), key),
                      0);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  std::string describe() const override { return fmt::format("HTTP (http://{}/{})", address_, kScope); }

 private:
  // HTTP 1.0, so that the server closes the connection and cuts no body into chunks.
  Result<HttpAnswer> request(std::string_view method, const std::string& key, const std::string& body,
                             Clock::time_point deadline) const {
    Result<LauncherSocket> socket = LauncherSocket::connect(address_, deadline, describe());
    if (!socket) return socket.status();
    std::string path = escape_pmi(key);
    std::replace(path.begin(), path.end(), '/',
                 '!');  // the server takes one slash for the scope, and no more
    TUTTI_RETURN_IF_ERROR(
        socket->write(fmt::format("{} /{}/{} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{}", method,
                                  kScope, path, address_, body.size(), body),
                      deadline));
    std::string head;
    for (std::size_t i = 0;; ++i) {
      Result<std::string> line = socket->read_line(kMaxLineBytes, deadline);
      if (!line) return line.status();
      if (!line->empty() && line->back() == '\r') line->pop_back();
      if (line->empty()) break;
      if (i == kMaxLines) return internal_error(fmt::format("{}: more than {} lines", describe(), kMaxLines));
      head += *line + '\n';
    }
    const Result<HttpHead> parsed = parse_http_head(head);
    if (!parsed) return parsed.status().with_context(describe());
    HttpAnswer answer{parsed->status, {}};
    if (answer.status != 200 || method != "GET") return answer;
    if (!parsed->body_bytes || *parsed->body_bytes > kMaxBodyBytes) {
      return internal_error(fmt::format("{}: a value without a length, or a longer one than {} bytes",
                                        describe(), kMaxBodyBytes));
    }
    Result<std::string> value = socket->read_bytes(*parsed->body_bytes, deadline);
    if (!value) return value.status();
    answer.body = *std::move(value);
    return answer;
  }

  std::string address_;
};

}  // namespace

Result<HttpHead> parse_http_head(std::string_view head) {
  const auto malformed = [] { return invalid_argument("the server does not speak HTTP"); };
  HttpHead result;
  bool is_first = true;
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    const std::string_view line = head.substr(0, end);
    head = head.substr(std::min(end + 1, head.size()));
    if (std::exchange(is_first, false)) {
      // "HTTP/1.0 200 OK"
      const std::size_t space = line.find(' ');
      if (!line.starts_with("HTTP/1.") || space == std::string_view::npos) return malformed();
      const std::string_view digits = line.substr(space + 1, 3);
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.status);
      if (digits.size() != 3 || error != std::errc{} || stop != digits.data() + 3 || result.status < 100)
        return malformed();
      continue;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return malformed();
    if (!equals_in_lower_case(without_spaces(line.substr(0, colon)), "content-length")) continue;
    const std::string_view digits = without_spaces(line.substr(colon + 1));
    std::size_t bytes = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (error != std::errc{} || stop != digits.data() + digits.size()) return malformed();
    result.body_bytes = bytes;
  }
  if (is_first) return malformed();
  return result;
}

std::shared_ptr<Store> make_http_store(std::string address) {
  return std::make_shared<HttpStore>(std::move(address));
}

}  // namespace tutti::detail

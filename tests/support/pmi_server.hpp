// The other end of PMI_FD, for tests: answers records of both versions until the client has gone. Knows no
// command but the one by which PMI-2 begins.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/pmi_text.hpp"

namespace tutti::test {

class PmiServer {
 public:
  using Answer = std::function<std::string(const detail::PmiRecord&)>;

  // `answer` gives what to send, with newline or length; nothing: no answer.
  explicit PmiServer(Answer answer) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    server_ = ends[0];
    client_ = ends[1];
    thread_ = std::thread([this, answer = std::move(answer)] { serve(answer); });
  }
  ~PmiServer() {
    finish();
    ::close(server_);
  }
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  Environment environment(int rank, int size) const {
    return {{"PMI_FD", std::to_string(client_)},
            {"PMI_RANK", std::to_string(rank)},
            {"PMI_SIZE", std::to_string(size)},
            {"PMI_JOBID", "7.0"}};
  }
  int client() const { return client_; }
  void hang_up() { ::shutdown(server_, SHUT_RDWR); }
  // Ends the server; gives the commands that it has read.
  const std::vector<std::string>& finish() {
    if (client_ >= 0) ::close(std::exchange(client_, -1));
    if (thread_.joinable()) {
      hang_up();  // somebody else may still hold the other end
      thread_.join();
    }
    return commands_;
  }

 private:
  void serve(const Answer& answer) {
    std::string unread;
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t got = ::read(server_, bytes.data(), bytes.size());
      if (got <= 0) return;
      unread.append(bytes.data(), static_cast<std::size_t>(got));
      for (std::string text; take(unread, text);) {
        const auto record = is_framed_ ? detail::parse_pmi2(text) : detail::parse_pmi1(text);
        commands_.push_back(record ? record->command : "?" + text);
        if (record && record->number("pmi_version") == 2) is_framed_ = true;
        const std::string sent = record ? answer(*record) : "cmd=what\n";
        if (::write(server_, sent.data(), sent.size()) < 0) return;
      }
    }
  }
  bool take(std::string& unread, std::string& text) const {
    const std::size_t head = is_framed_ ? 6 : 0;
    if (is_framed_ && unread.size() < head) return false;
    const std::size_t length = is_framed_ ? std::stoul(unread) : unread.find('\n');
    if (length == std::string::npos || unread.size() < head + length) return false;
    text = unread.substr(head, length);
    unread.erase(0, is_framed_ ? head + length : length + 1);
    return true;
  }

  int server_ = -1, client_ = -1;
  bool is_framed_ = false;
  std::vector<std::string> commands_;
  std::thread thread_;
};

}  // namespace tutti::test

// Queues between threads; see mailbox.hpp. Knows no worker.
#include "tests/transports/null/mailbox.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace tutti::null {

namespace {

struct Directory {
  std::mutex mutex;
  std::uint64_t last_number = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<Mailbox>> mailboxes;
};

Directory& directory() {
  static Directory one;
  return one;
}

}  // namespace

// -- long messages ------------------------------------------------------------------------------------------

bool Remote::copy_to(std::span<const iovec> ranges) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::offered) return false;
    std::size_t at = 0;  // in ranges[0]
    for (const iovec& item : ranges_.items()) {
      for (std::size_t from = 0; from < item.iov_len;) {
        const std::size_t bytes = std::min(item.iov_len - from, ranges[0].iov_len - at);
        std::memcpy(static_cast<std::byte*>(ranges[0].iov_base) + at,
                    static_cast<const std::byte*>(item.iov_base) + from, bytes);
        from += bytes;
        at += bytes;
        if (at != ranges[0].iov_len) continue;
        ranges = ranges.subspan(1);
        at = 0;
      }
    }
    state_ = State::over;
  }
  sender_->put(std::make_unique<Packet>());
  return true;
}

void Remote::drop() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::offered) return;
    state_ = State::over;
  }
  sender_->put(std::make_unique<Packet>());
}

bool Remote::take_back() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::over) return false;
  state_ = State::taken_back;
  return true;
}

bool Remote::is_over() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::over;
}

// -- mailboxes ----------------------------------------------------------------------------------------------

std::shared_ptr<Mailbox> Mailbox::make() {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  auto mailbox = std::make_shared<Mailbox>(++all.last_number, ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  all.mailboxes[mailbox->number()] = mailbox;
  return mailbox;
}

std::shared_ptr<Mailbox> Mailbox::find(std::uint64_t number) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  const auto found = all.mailboxes.find(number);
  const std::shared_ptr<Mailbox> mailbox = found == all.mailboxes.end() ? nullptr : found->second.lock();
  return mailbox != nullptr && !mailbox->is_closed() ? mailbox : nullptr;
}

Mailbox::~Mailbox() { ::close(event_fd_); }

void Mailbox::put(std::unique_ptr<Packet> packet) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  packets_.push_back(std::move(packet));
  const std::uint64_t one = 1;
  static_cast<void>(::write(event_fd_, &one, sizeof one) == sizeof one);  // full: it is readable as it is
}

std::unique_ptr<Packet> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  if (packets_.empty()) return nullptr;
  std::unique_ptr<Packet> packet = std::move(packets_.front());
  packets_.pop_front();
  return packet;
}

bool Mailbox::arm() {
  const std::lock_guard lock(mutex_);
  if (!packets_.empty()) return false;
  std::uint64_t count = 0;
  static_cast<void>(::read(event_fd_, &count, sizeof count) == sizeof count);  // nothing there: as wanted
  return true;
}

void Mailbox::close() {
  std::deque<std::unique_ptr<Packet>> unread;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    unread.swap(packets_);
  }
  for (const std::unique_ptr<Packet>& packet : unread) {
    if (packet->remote) packet->remote->drop();
  }
}

bool Mailbox::is_closed() const {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

}  // namespace tutti::null

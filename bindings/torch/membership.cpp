// The groups of this process, until its end. Knows no tensor and no operation.
#include "bindings/torch/membership.hpp"

#include "bindings/torch/completion_threads.hpp"

#include <unordered_map>
#include <vector>

namespace tutti::torch_binding {
namespace {

struct Living {
  std::mutex mutex;
  std::unordered_map<Membership*, std::weak_ptr<Membership>> members;
};

}  // namespace

std::shared_ptr<Membership> Membership::make(CommGroup group) {
  std::shared_ptr<Membership> made(new Membership(std::move(group)));
  Living& living = tutti::detail::of_process<Living>();
  const std::lock_guard lock(living.mutex);
  living.members.emplace(made.get(), made);
  return made;
}

Membership::~Membership() {
  Living& living = tutti::detail::of_process<Living>();
  const std::lock_guard lock(living.mutex);
  living.members.erase(this);
}

void Membership::abort(const std::string& why) {
  const CommGroup group = group_;
  if (group.is_open()) group.abort(why);
}

std::optional<Error> Membership::failure() {
  const std::lock_guard lock(mutex_);
  return group_.is_open() ? group_.failure() : std::nullopt;
}

void Membership::close() {
  if (is_inherited()) return;  // a thread of the parent may hold the mutex for ever
  CommGroup last;
  const std::lock_guard lock(mutex_);
  std::swap(last, group_);
}

bool Membership::meet(std::chrono::milliseconds at_most) {
  if (is_inherited()) return false;
  try {
    return use([](const CommGroup& group) { return group.ibarrier(); }).wait_for(at_most);
  } catch (const Error&) {
    return false;
  }
}

void Membership::close_later() {
  CommGroup last;
  {
    const std::lock_guard lock(mutex_);
    std::swap(last, group_);
  }
  CompletionThreads::instance().run([last = std::move(last)]() mutable { last = CommGroup(); });
}

void Membership::close_all() {
  std::vector<std::shared_ptr<Membership>> all;
  {
    Living& living = tutti::detail::of_process<Living>();
    const std::lock_guard lock(living.mutex);
    for (const auto& [address, member] : living.members) {
      if (std::shared_ptr<Membership> living_member = member.lock()) all.push_back(std::move(living_member));
    }
  }
  for (const std::shared_ptr<Membership>& member : all) member->close();
}

}  // namespace tutti::torch_binding

// The lives of the groups of this process. Knows no tensor and no operation.
#include "bindings/torch/membership.hpp"

#include <unordered_map>
#include <vector>

namespace tutti::torch_binding {
namespace {

// Never destroyed: what Python keeps may die after static destructors.
struct Living {
  std::mutex mutex;
  std::unordered_map<Membership*, std::weak_ptr<Membership>> members;
};
Living& living() {
  static auto* all = new Living;
  return *all;
}

}  // namespace

std::shared_ptr<Membership> Membership::make(CommGroup group) {
  std::shared_ptr<Membership> made(new Membership(std::move(group)));
  const std::lock_guard lock(living().mutex);
  living().members.emplace(made.get(), made);
  return made;
}

Membership::~Membership() {
  const std::lock_guard lock(living().mutex);
  living().members.erase(this);
}

void Membership::abort(const std::string& why) {
  const CommGroup group = group_;
  if (group.is_open()) group.abort(why);
}

std::optional<Error> Membership::failure() {
  const std::lock_guard lock(mutex_);
  return group_.is_open() ? group_.failure() : std::nullopt;
}

void Membership::release(void* memory) {
  const std::lock_guard lock(mutex_);
  if (group_.is_open()) tutti::free(group_, memory);
}

void Membership::close() {
  CommGroup last;
  const std::lock_guard lock(mutex_);
  std::swap(last, group_);
}

void Membership::close_all() {
  std::vector<std::shared_ptr<Membership>> all;
  {
    const std::lock_guard lock(living().mutex);
    for (const auto& [address, member] : living().members) {
      if (std::shared_ptr<Membership> living_member = member.lock()) all.push_back(std::move(living_member));
    }
  }
  for (const std::shared_ptr<Membership>& member : all) member->close();
}

}  // namespace tutti::torch_binding

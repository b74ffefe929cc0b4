// Sharing of an engine between worlds. See world_engine.hpp.
#include "runtime/group/world_engine.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

WorldEngine::WorldEngine(std::vector<std::unique_ptr<Transport>> transports, Engine::Options options,
                         std::unique_ptr<Trace> trace, int ranks_here)
    : trace_(std::move(trace)), ranks_here_(ranks_here) {
  options.on_stall = [this](const Stall& stall) { on_stall(stall); };
  options.trace = trace_.get();
  engine_ = std::make_unique<Engine>(std::move(transports), std::move(options));
}

std::vector<Transport*> WorldEngine::list_transports() {
  std::vector<Transport*> transports;
  for (std::size_t i = 0; i < engine_->transport_count(); ++i) transports.push_back(&engine_->transport(i));
  return transports;
}

void WorldEngine::add(StallReceiver& world) {
  const std::lock_guard lock(mutex_);
  users_.push_back(std::make_unique<User>(User{&world, 0, false}));
}

void WorldEngine::remove(StallReceiver& world) {
  std::unique_lock lock(mutex_);
  const auto is_meant = [&](const auto& user) { return user->world == &world; };
  reported_.wait(lock, [&] {
    const auto user = std::find_if(users_.begin(), users_.end(), is_meant);
    return user == users_.end() || (*user)->reports == 0;
  });
  std::erase_if(users_, is_meant);
}

bool WorldEngine::leave(const StallReceiver& world, std::chrono::milliseconds at_most) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& user : users_) user->has_left = user->has_left || user->world == &world;
    if (!std::all_of(users_.begin(), users_.end(), [](const auto& user) { return user->has_left; }))
      return false;
  }
  engine_->leave(at_most);
  if (trace_ != nullptr) trace_->flush();
  return true;
}

void WorldEngine::on_stall(const Stall& stall) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(users_.begin(), users_.end(),
                                  [&](const auto& user) { return user->world->has_group(stall.context); });
  if (found == users_.end()) return;
  User& user = **found;
  ++user.reports;
  lock.unlock();
  user.world->on_stall(stall);
  lock.lock();
  --user.reports;
  reported_.notify_all();
}

}  // namespace tutti

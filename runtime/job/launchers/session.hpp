// Sessions with a launcher, of which a process has one, however many worlds it makes. Knows no protocol.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/status.hpp"

namespace tutti::detail {

// Launchers take a process that has spoken to them and ends without a farewell for a crash, and kill the job.
// So sessions last to the end of the process and say farewell then.
class LauncherSession {
 public:
  virtual ~LauncherSession() = default;
  // May be called more than once. Does nothing in a child of fork(), whose parent still speaks, and nothing
  // where an MPI library will do it.
  virtual void finalize() = 0;
};

// For a static variable: opened by the first caller, finalized when the variable ends. Sessions live on as
// long as somebody holds them.
template <class Session>
class SessionOfProcess {
 public:
  // `key` is what the environment says about the session; opens unless there is one of that key.
  template <class Open>
  Result<std::shared_ptr<Session>> get(const std::string& key, Open open) {
    const std::lock_guard lock(mutex_);
    if (const auto found = sessions_.find(key); found != sessions_.end()) return found->second;
    Result<std::shared_ptr<Session>> opened = open();
    if (opened) sessions_[key] = *opened;
    return opened;
  }
  ~SessionOfProcess() {
    for (auto& [key, session] : sessions_) session->finalize();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
};

// Is MPI initialized and not finalized in this process? Asked of whatever MPI library the program is linked
// with; false without one.
bool is_mpi_running();
// Is an MPI library part of this process?
bool is_mpi_present();

}  // namespace tutti::detail

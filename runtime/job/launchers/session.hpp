// Sessions with a launcher: one for a process, however many worlds it makes. Knows no protocol.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/status.hpp"

namespace tutti::detail {

// Launchers take the end of a connected process without a finalize call for a crash, and kill the job. So
// sessions last until the process ends, and finalize then.
class LauncherSession {
 public:
  virtual ~LauncherSession() = default;
  // May be called more than once. Does nothing in a child of fork(), whose parent uses the connection, and
  // nothing where an MPI library will finalize.
  virtual void finalize() = 0;
};

// For a static variable: opened by the first caller, finalized when the variable ends. Sessions stay alive as
// long as they are referenced.
template <class Session>
class SessionOfProcess {
 public:
  // `key` identifies the session by its variables; opens unless there is one of that key.
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

// Whether MPI is initialized and not finalized in this process. Asks the MPI library that the program is
// linked with; false without one.
bool is_mpi_running();
// Whether an MPI library is part of this process.
bool is_mpi_present();

}  // namespace tutti::detail

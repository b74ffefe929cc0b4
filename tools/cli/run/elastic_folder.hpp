// The folder through which `tutti run` and the ranks of an elastic job tell each other what changes. Knows no process.
//   invitation      written by rank 0 of each group of ranks: how processes join it; on other hosts by their `tutti run`
//   starting.SLOT   a process that will join; it renames the file to waiting.SLOT, then to member.SLOT
//   waiting.elsewhere  on another host a process waits; ranks remove it when they change
//   A waiting file may hold a number of the process, by which ranks know it once they have admitted it.
//   leave.SLOT      the rank in this slot is to leave at its next commit
// The ranks' side is bindings/python/tutti/horovod/_elastic_folder.py.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

class ElasticFolder {
 public:
  ElasticFolder() = default;
  // Below TMPDIR; only this user can read it. Removes those of launchers that were killed. Errors: internal.
  static Result<ElasticFolder> make();
  ElasticFolder(ElasticFolder&& other) noexcept;
  ElasticFolder& operator=(ElasticFolder&& other) noexcept;
  ~ElasticFolder();  // removes it

  const std::string& path() const { return path_; }
  bool has_invitation() const;
  std::string invitation() const;  // empty: there is none
  void invite(const std::string& text) const;
  void note_waiting_elsewhere(const std::string& process) const;
  std::string read(const char* state, int slot) const;  // empty: there is nothing
  bool has(const char* state, int slot) const;
  // Replaces all that is there about the slot.
  void set(const char* state, int slot) const;
  void forget(int slot) const;

 private:
  std::string path_;  // empty: there is none
  OwnedFd lock_;      // on the folder: its launcher lives
};

}  // namespace tutti

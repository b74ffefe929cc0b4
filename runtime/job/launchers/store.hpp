// The key-value store of a launcher (PMI, PMIx, a rendezvous server), by which ranks find rank 0 before they
// are connected. Knows no launcher and no rank.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

// Small texts without zero bytes, up to 64 KiB: an implementation splits texts that are too long for its
// launcher. Only processes of the job can read it, so it may carry the job's secret. One thread at a time.
class Store {
 public:
  virtual ~Store() = default;
  // By rank 0 only, which the other ranks read; each key once.
  virtual Status put(const std::string& key, const std::string& value) = 0;
  // Called by every rank of the job, after its last put and before its first get. Where values become visible
  // only after a fence, this is that fence and waits for all ranks; elsewhere it returns at once. Errors:
  // timeout, with what is known of the missing ranks.
  virtual Status commit(Clock::time_point deadline) = 0;
  // Waits until the key exists. Errors: timeout, naming the key.
  virtual Result<std::string> get(const std::string& key, Clock::time_point deadline) = 0;
  // One line for `tutti info --bootstrap`: "PMI-1 (kvs_1234_0)".
  virtual std::string describe() const = 0;
};

}  // namespace tutti

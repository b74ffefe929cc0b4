// The key-value store that a launcher carries (PMI, PMIx, a rendezvous server): how the ranks of a job find
// rank 0 before they can talk to each other. Knows no launcher and no rank.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

// Small texts without zero bytes, up to 64 KiB: an implementation splits what its launcher finds too long.
// Only processes of the job can read it, so it may carry the job's secret. One thread at a time.
class Store {
 public:
  virtual ~Store() = default;
  // By rank 0 only, which is where the others look; each key once.
  virtual Status put(const std::string& key, const std::string& value) = 0;
  // Called by every rank of the job, after it has put what it has to put and before its first get. Where the
  // store shows values only after a fence, this is that fence and waits for all ranks; elsewhere it returns
  // at once. Errors: timeout, saying what is known of who is missing.
  virtual Status commit(Clock::time_point deadline) = 0;
  // Waits until the key is there. Errors: timeout, naming the key.
  virtual Result<std::string> get(const std::string& key, Clock::time_point deadline) = 0;
  // One line for `tutti info --bootstrap`: "PMI-1 (kvs_1234_0)".
  virtual std::string describe() const = 0;
};

}  // namespace tutti

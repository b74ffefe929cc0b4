// Exchange: an allgather of a few bytes before any transport exists. The seam of bootstrap. Knows no
// transport, collective or environment variable.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every member contributes bytes (of any length) and gets all contributions in rank order. All members make
  // the same calls in the same order; one thread at a time. Errors: timeout naming the missing ranks,
  // peer_failed.
  virtual Result<std::vector<std::string>> allgather(std::string_view mine, Clock::time_point deadline) = 0;

  // All members have read all contributions: stored copies may be erased.
  virtual void clean_up() {}

  // Returns once every member has called it.
  Status barrier(Clock::time_point deadline) { return allgather({}, deadline).status(); }
};

// The allgather of the program (MPI_Allgatherv, a framework's own). It may throw: the text becomes the error.
using AllgatherFunction = std::function<std::vector<std::string>(std::string_view mine)>;
std::unique_ptr<Exchange> make_function_exchange(int rank, int size, AllgatherFunction allgather);

// A key-value store of the program, as torch's Store: `get` waits until the key exists. Keys start with
// `prefix`, which must be new for every world that uses the same store, unless keys can be erased. All may
// throw.
using PutFunction = std::function<void(const std::string& key, const std::string& value)>;
using GetFunction = std::function<std::string(const std::string& key)>;
using EraseFunction = std::function<void(const std::string& key)>;  // may be empty
std::unique_ptr<Exchange> make_store_exchange(int rank, int size, std::string prefix, PutFunction put,
                                              GetFunction get, EraseFunction erase = {});

// "300 s", "0.5 s"
std::string format_seconds(Clock::duration duration);

}  // namespace tutti

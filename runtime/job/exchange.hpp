// Exchange: an allgather of a few bytes before any transport exists. The seam of bootstrap. Knows no
// transport, collective or environment variable.
#pragma once

#include <functional>
#include <map>
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

// "rank 2 of 8", "ranks 2, 5 of 8": the beginning of messages about missing ranks.
std::string name_ranks(const std::vector<int>& ranks, int size);
// `holders`: ranks by their value. Returns the first rank of the smallest set, to be named in an error about
// ranks that differ. Equal on all ranks.
template <class Key>
int first_of_fewest(const std::map<Key, std::vector<int>>& holders) {
  const std::vector<int>* fewest = nullptr;
  for (const auto& [key, ranks] : holders) {
    // Of sets of equal size the one with rank 0 is taken for right.
    const bool are_fewer = fewest == nullptr || ranks.size() < fewest->size() ||
                           (ranks.size() == fewest->size() && ranks.front() > fewest->front());
    if (are_fewer) fewest = &ranks;
  }
  return fewest == nullptr ? Status::kNoPeer : fewest->front();
}
// "300 s", "0.5 s"
std::string format_seconds(Clock::duration duration);

}  // namespace tutti

// Worlds whose ranks are threads of this process, through the public interface.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti {

using Verdict = std::string;  // empty: as expected

// Runs `body` as every rank of a world; the first complaint, with its rank.
inline Verdict with_ranks(int size, const std::function<Verdict(CommGroup&)>& body,
                          std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  const std::string id = make_unique_id();
  std::vector<std::future<Verdict>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> Verdict {
      try {
        InitOptions options;
        options.unique_id = id;
        options.rank = rank;
        options.size = size;
        options.timeout = timeout;
        CommGroup world = init(options);
        return body(world);
      } catch (const Error& error) {
        return std::string("threw ") + error.what();
      }
    }));
  }
  Verdict verdict;
  for (int rank = 0; rank < size; ++rank) {
    const Verdict one = ranks[static_cast<std::size_t>(rank)].get();
    if (verdict.empty() && !one.empty()) verdict = "rank " + std::to_string(rank) + ": " + one;
  }
  return verdict;
}

}  // namespace tutti

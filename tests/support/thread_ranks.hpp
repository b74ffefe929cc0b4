// Worlds whose ranks are threads of this process, through the public interface.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti {

using Verdict = std::string;  // empty: as expected

// Variables of the environment while a test runs.
class Variables {
 public:
  Variables(std::initializer_list<std::pair<std::string, std::string>> values) : values_(values) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

// Waits without calling tutti. False after 20 s.
inline bool becomes_true(const std::atomic<bool>& flag) {
  for (int i = 0; i < 20000 && !flag.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag.load();
}

// The text of the error that a call throws; empty if it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Runs `body` as every rank of a world; what they complain of, with their ranks. The usual timeout is long: a busy machine
// under a sanitizer may let a rank run seldom.
inline Verdict with_ranks(int size, const std::function<Verdict(CommGroup&)>& body,
                          std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
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
    if (!one.empty()) verdict += "rank " + std::to_string(rank) + ": " + one + "\n";
  }
  return verdict;
}

// Runs body(group, index) for each of the groups at once, in a thread of its own; the first complaint.
inline Verdict with_threads(const std::vector<CommGroup>& groups,
                            const std::function<Verdict(const CommGroup&, std::size_t)>& body) {
  std::vector<std::future<Verdict>> threads;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    threads.push_back(std::async(std::launch::async, [&, i]() -> Verdict {
      try {
        return body(groups[i], i);
      } catch (const Error& error) {
        return std::string("threw ") + error.what();
      }
    }));
  }
  Verdict verdict;
  for (std::future<Verdict>& thread : threads) {
    if (Verdict one = thread.get(); verdict.empty()) verdict = std::move(one);
  }
  return verdict;
}

}  // namespace tutti

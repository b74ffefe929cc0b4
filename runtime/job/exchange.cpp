// Exchanges over functions of the program. Knows neither MPI nor torch, only the functions it was given.
#include "runtime/job/exchange.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace tutti {
namespace {

Status program_failed(std::string_view what, const std::exception& error, int rank = Status::kNoPeer) {
  return Status(StatusCode::internal, fmt::format("the program's exchange: {} threw: {}", what, error.what()),
                rank);
}

class FunctionExchange final : public Exchange {
 public:
  FunctionExchange(int rank, int size, AllgatherFunction allgather)
      : rank_(rank), size_(size), allgather_(std::move(allgather)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // The deadline is up to the program: its function may block longer.
  Result<std::vector<std::string>> allgather(std::string_view mine, Clock::time_point /*deadline*/) override {
    try {
      std::vector<std::string> all = allgather_(mine);
      if (all.size() != static_cast<std::size_t>(size_)) {
        return invalid_argument(fmt::format(
            "the program's exchange: allgather returned {} values for {} ranks", all.size(), size_));
      }
      if (all[static_cast<std::size_t>(rank_)] != mine) {
        return invalid_argument(fmt::format(
            "the program's exchange: allgather's value {} is not what rank {} gave", rank_, rank_));
      }
      return all;
    } catch (const std::exception& error) {
      return program_failed("allgather", error);
    }
  }

 private:
  int rank_;
  int size_;
  AllgatherFunction allgather_;
};

class StoreExchange final : public Exchange {
 public:
  StoreExchange(int rank, int size, std::string prefix, PutFunction put, GetFunction get, EraseFunction erase)
      : rank_(rank),
        size_(size),
        prefix_(std::move(prefix)),
        put_(std::move(put)),
        get_(std::move(get)),
        erase_(std::move(erase)) {}
  // Also after a failed start: the next attempt must not find keys of this one.
  ~StoreExchange() override { clean_up(); }
  StoreExchange(const StoreExchange&) = delete;
  StoreExchange& operator=(const StoreExchange&) = delete;
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Result<std::vector<std::string>> allgather(std::string_view mine, Clock::time_point deadline) override {
    const std::uint64_t call = calls_++;
    const auto key = [&](int rank) { return fmt::format("{}/{}/{}", prefix_, call, rank); };
    std::vector<std::string> all;
    try {
      put_keys_.push_back(key(rank_));
      put_(key(rank_), std::string(mine));
      for (int rank = 0; rank < size_; ++rank) {
        if (Clock::now() > deadline) {
          return Status(StatusCode::timeout,
                        fmt::format("the program's store: no value of rank {} in time", rank), rank);
        }
        all.push_back(get_(key(rank)));
      }
      return all;
    } catch (const std::exception& error) {
      const auto awaited = static_cast<int>(all.size());
      return program_failed(fmt::format("the store, asked for what rank {} gives,", awaited), error, awaited);
    }
  }

  void clean_up() override {
    for (const std::string& key : std::exchange(put_keys_, {})) {
      if (erase_ == nullptr) continue;
      try {
        erase_(key);
      } catch (const std::exception&) {
        // The store cannot erase, or is gone. This world no longer depends on it.
      }
    }
  }

 private:
  int rank_;
  int size_;
  std::string prefix_;
  PutFunction put_;
  GetFunction get_;
  EraseFunction erase_;
  std::vector<std::string> put_keys_;
  std::uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_function_exchange(int rank, int size, AllgatherFunction allgather) {
  return std::make_unique<FunctionExchange>(rank, size, std::move(allgather));
}

std::unique_ptr<Exchange> make_store_exchange(int rank, int size, std::string prefix, PutFunction put,
                                              GetFunction get, EraseFunction erase) {
  return std::make_unique<StoreExchange>(rank, size, std::move(prefix), std::move(put), std::move(get),
                                         std::move(erase));
}

std::string format_seconds(Clock::duration duration) {
  const auto rounded = std::chrono::round<std::chrono::milliseconds>(duration);
  return fmt::format("{:g} s", std::chrono::duration<double>(rounded).count());
}

}  // namespace tutti

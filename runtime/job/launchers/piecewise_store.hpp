// A Store over a key-value space whose keys and values are short and of few characters, as those of PMI are.
// Knows no protocol.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/job/launchers/store.hpp"

namespace tutti::detail {

// What a launcher's protocol offers. Keys and values that it is given are as escape_pmi() writes them.
class KeyValueSpace {
 public:
  virtual ~KeyValueSpace() = default;
  virtual Status put(const std::string& key, const std::string& value, Clock::time_point deadline) = 0;
  // What has been put before the last fence; nullopt: nothing.
  virtual Result<std::optional<std::string>> find(const std::string& key, Clock::time_point deadline) = 0;
  virtual Status fence(Clock::time_point deadline) = 0;
  virtual std::size_t key_limit_bytes() const = 0;
  virtual std::size_t value_limit_bytes() const = 0;
  virtual std::string describe() const = 0;
};

// The status of a fence; a timeout says what is known of who is missing.
Status explain_fence(const Status& status, const std::string& space, int rank, int size);

std::shared_ptr<Store> make_piecewise_store(std::shared_ptr<KeyValueSpace> space);

}  // namespace tutti::detail

// A Store over a key-value space with short keys and values and a small character set, as in PMI. Knows no
// protocol.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/job/launchers/store.hpp"

namespace tutti::detail {

// The key-value space of a launcher's protocol. Keys and values are escaped by escape_pmi().
class KeyValueSpace {
 public:
  virtual ~KeyValueSpace() = default;
  virtual Status put(const std::string& key, const std::string& value, Clock::time_point deadline) = 0;
  // The value put before the last fence; nullopt: none.
  virtual Result<std::optional<std::string>> find(const std::string& key, Clock::time_point deadline) = 0;
  virtual Status fence(Clock::time_point deadline) = 0;
  virtual std::size_t key_limit_bytes() const = 0;
  virtual std::size_t value_limit_bytes() const = 0;
  virtual std::string describe() const = 0;
};

// The status of a fence, with what is known of missing ranks after a timeout.
Status explain_fence(const Status& status, const std::string& space, int rank, int size);

std::shared_ptr<Store> make_piecewise_store(std::shared_ptr<KeyValueSpace> space);

}  // namespace tutti::detail

// CPU cycles of communication calls and of the time between them, for each operation of a session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/mlsl/include/mlsl.hpp"

namespace tutti::mlsl {

struct SessionImpl;
struct OperationImpl;

using Cycles = unsigned long long;

struct StatisticsImpl : MLSL::Statistics {
  struct Sums {
    Cycles isolated = 0, communication = 0, computation = 0;
    std::size_t bytes = 0;
  };
  explicit StatisticsImpl(SessionImpl& owner) : session(owner) {}

  bool is_enabled() const;
  void begin();
  void reset();
  // Measures one step's communication of each operation with nothing beside it. Collective.
  void measure_isolated();
  Sums& of(std::size_t operation);
  Sums total();
  void print();

  // A call of an operation: the time since the last one was computation, until its end it is communication.
  class Call {
   public:
    Call(OperationImpl& operation, std::size_t bytes);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    StatisticsImpl* statistics_ = nullptr;
    Sums* sums_ = nullptr;
    Cycles start_ = 0;
  };

  SessionImpl& session;
  bool is_started = false;
  Cycles last = 0;  // end of the last call
  std::vector<Sums> sums;
};

inline StatisticsImpl& impl(MLSL::Statistics* statistics) {
  return *static_cast<StatisticsImpl*>(statistics);
}

}  // namespace tutti::mlsl

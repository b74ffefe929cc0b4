// Counts cycles and bytes. See statistics.hpp.
#include "bindings/mlsl/statistics.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/operation.hpp"

#if !defined(__x86_64__)
#include <chrono>
#endif

namespace tutti::mlsl {
namespace {

constexpr int kRuns = 4;  // the first one warms up

// Zeros, so that compression leaves no residual.
std::shared_ptr<void> scratch(std::size_t bytes) {
  auto memory = environment().allocate_owned(bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

void run_once(OperationImpl& operation) {
  for (const auto* const side : {&operation.inputs, &operation.outputs}) {
    for (const auto& activation : *side) {
      if (!activation->communicates()) continue;
      const auto memory = scratch(activation->buffer_bytes());
      activation->start(memory.get());
      activation->request.wait();
      activation->received = nullptr;
    }
  }
  for (const auto& params : operation.parameter_sets) {
    const bool is_ready =
        params->kernels.compression == MLSL::CT_NONE || environment().quantizer() != nullptr;
    if (!params->communicates() || !is_ready) continue;
    const auto memory = scratch(params->gradient_bytes());
    params->start_gradients(memory.get());
    params->gradient_request.wait();
    params->start_increments(memory.get());
    params->increment_request.wait();
    params->gradient_result = params->increment_result = nullptr;
  }
}

Cycles read_cycles() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<Cycles>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace

bool StatisticsImpl::is_enabled() const { return environment().settings().has_statistics; }

void StatisticsImpl::begin() {
  is_started = is_enabled();
  last = read_cycles();
}

void StatisticsImpl::reset() {
  for (Sums& sum : sums) sum = {sum.isolated, 0, 0, 0};
  last = read_cycles();
}

void StatisticsImpl::measure_isolated() {
  sums.assign(session.operations.size(), {});
  if (!is_enabled()) return;
  for (std::size_t index = 0; index < sums.size(); ++index) {
    for (int run = 0; run < kRuns; ++run) {
      const Cycles start = read_cycles();
      run_once(*session.operations[index]);
      if (run > 0) sums[index].isolated += (read_cycles() - start) / (kRuns - 1);
    }
  }
}

StatisticsImpl::Sums& StatisticsImpl::of(std::size_t operation) {
  session.operation(operation);
  if (sums.size() <= operation) sums.resize(operation + 1);
  return sums[operation];
}

StatisticsImpl::Sums StatisticsImpl::total() {
  Sums all;
  for (const Sums& sum : sums) {
    all.isolated += sum.isolated;
    all.communication += sum.communication;
    all.computation += sum.computation;
    all.bytes += sum.bytes;
  }
  return all;
}

void StatisticsImpl::print() {
  if (!is_enabled() || environment().rank() != 0) return;
  std::string text = fmt::format("{:<32}{:>14}{:>18}{:>18}{:>18}\n", "operation", "bytes", "isolated cycles",
                                 "comm cycles", "compute cycles");
  const auto add = [&](const std::string& name, const Sums& sum) {
    text += fmt::format("{:<32}{:>14}{:>18}{:>18}{:>18}\n", name, sum.bytes, sum.isolated, sum.communication,
                        sum.computation);
  };
  for (std::size_t index = 0; index < session.operations.size(); ++index)
    add(session.operations[index]->name, of(index));
  add("total", total());
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

StatisticsImpl::Call::Call(OperationImpl& operation, std::size_t bytes) {
  StatisticsImpl& statistics = operation.session.statistics;
  if (!statistics.is_started) return;
  statistics_ = &statistics;
  sums_ = &statistics.of(operation.index);
  start_ = read_cycles();
  sums_->computation += start_ - statistics.last;
  sums_->bytes += bytes;
}

StatisticsImpl::Call::~Call() {
  if (statistics_ == nullptr) return;
  statistics_->last = read_cycles();
  sums_->communication += statistics_->last - start_;
}

}  // namespace tutti::mlsl

// The start and end of a job, and the objects that belong to it. See environment.hpp.
#include "bindings/mlsl/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/mpi_beside.hpp"
#include "bindings/mlsl/quantizer.hpp"

namespace tutti::mlsl {

EnvironmentImpl& environment() {
  // Lives as long as the process: programs end without Finalize, and free memory after it.
  static auto* const kInstance = new EnvironmentImpl;
  return *kInstance;
}

void EnvironmentImpl::require_initialized(const char* call) const {
  if (!is_initialized()) fail(std::string(call) + ": call Environment::Init first");
}

void EnvironmentImpl::start(int* argc, char*** argv) {
  if (is_initialized()) {
    if (settings_.allows_reinit) return;
    fail("Init was called twice");
  }
  std::vector<std::string> answers;
  settings_ = read_environment(answers);
  set_log_level(settings_.log_level);
  if (settings_.has_priority) ::setenv("TUTTI_PRIORITY", "direct", 0);  // the program's own choice wins
  guarded("Init", [&] {
    ends_mpi_ = settings_.starts_mpi && start_mpi(argc, argv);
    world_ = init();
    global_ = world_;
    rank_ = global_.rank();
    owner_ = ::getpid();
  });
  if (rank_ == 0)
    for (const std::string& answer : answers) warn(answer);
  if (early_config_) configure(*std::exchange(early_config_, std::nullopt));
  if (is_logged(LogLevel::info))
    log(LogLevel::info, fmt::format("started, {} ranks, tutti {}", global_.size(), tutti::version()));
}

void EnvironmentImpl::configure(const std::string& config) {
  guarded("Configure", [&] {
    const auto color = parse_color(config);
    if (!color) return warn("Configure: '" + config + "' has no effect; \"color=N\" is known");
    if (!is_initialized()) {
      early_config_ = config;
      return;
    }
    global_ = global_.split(*color);
    rank_ = global_.rank();
  });
}

void EnvironmentImpl::leave() {
  if (!is_initialized() || owner_ != ::getpid()) return;  // a child of fork() leaves the parent's job alone
  decltype(requests_) under_way;
  {
    const std::scoped_lock lock(mutex_);
    under_way.swap(requests_);
  }
  under_way.clear();
  global_ = CommGroup();
  world_ = CommGroup();
  if (std::exchange(ends_mpi_, false)) end_mpi();
}

void EnvironmentImpl::abandon(const std::string& why) noexcept {
  if (!is_initialized() || owner_ != ::getpid()) return;
  try {
    world_.abort("MLSL: " + why);
  } catch (const std::exception&) {  // it has failed before
  }
}

DistributionImpl* EnvironmentImpl::make_distribution(const std::vector<Colors>& colors) {
  return guarded("CreateDistribution", [&] {
    auto made = std::make_unique<DistributionImpl>(global_, colors);
    if (is_logged(LogLevel::debug)) {
      const Place& place = made->place();
      log(LogLevel::debug,
          fmt::format("distribution: data group {} of {}, model group {} of {}", place.data_index,
                      place.data_count, place.model_index, place.model_count));
    }
    return made.release();
  });
}

MLSL::QuantParams* EnvironmentImpl::quantization_params() const {
  return quantizer_ == nullptr ? nullptr : quantizer_->params();
}

void EnvironmentImpl::load_quantizer(const MLSL::QuantParams& params) {
  quantizer_ = guarded("SetQuantizationParams", [&] { return std::make_shared<Quantizer>(params); });
}

MLSL::CommReq* EnvironmentImpl::keep(std::unique_ptr<Request> request) {
  const std::scoped_lock lock(mutex_);
  auto* const key = reinterpret_cast<MLSL::CommReq*>(++last_key_);
  requests_.emplace(key, std::move(request));
  return key;
}

std::unique_ptr<Request> EnvironmentImpl::take(MLSL::CommReq* key) {
  const std::scoped_lock lock(mutex_);
  const auto found = requests_.find(key);
  if (found == requests_.end()) return nullptr;
  auto request = std::move(found->second);
  requests_.erase(found);
  return request;
}

void EnvironmentImpl::wait(MLSL::CommReq* key) {
  if (const auto request = take(key)) request->wait();
}

bool EnvironmentImpl::test(MLSL::CommReq* key) {
  auto request = take(key);
  if (request == nullptr || request->test()) return true;
  const std::scoped_lock lock(mutex_);
  requests_.emplace(key, std::move(request));
  return false;
}

std::shared_ptr<void> EnvironmentImpl::allocate_owned(std::size_t bytes) {
  return guarded("Alloc", [&] { return alloc_owned(global_, std::max<std::size_t>(bytes, 1)); });
}

void* EnvironmentImpl::allocate(std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t kGiven = 64;  // of every allocation
  if ((alignment & (alignment - 1)) != 0)
    fail(fmt::format("Alloc: alignment {} is no power of two", alignment));
  const std::size_t slack = alignment > kGiven ? alignment - kGiven : 0;
  auto held = allocate_owned(bytes + slack);
  auto address = reinterpret_cast<std::uintptr_t>(held.get());
  if (slack > 0) address = (address + alignment - 1) & ~(alignment - 1);
  void* const memory =
      static_cast<char*>(held.get()) + (address - reinterpret_cast<std::uintptr_t>(held.get()));
  const std::scoped_lock lock(mutex_);
  memory_.emplace(memory, std::move(held));
  return memory;
}

void EnvironmentImpl::release(void* memory) {
  if (memory == nullptr) return;
  std::shared_ptr<void> held;  // released without the lock
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) fail("Free: the pointer is not from Alloc, or was freed before");
  held = std::move(found->second);
  memory_.erase(found);
}

}  // namespace tutti::mlsl

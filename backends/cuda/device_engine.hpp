// The interface of a device engine: one way to carry out calls on the memory of a GPU.
// An engine prepares each signature once and then starts its calls. Knows no rule and no price.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "backends/backend.hpp"

namespace tutti::cuda {

// Calls of one signature, checked and worked out: a plan, a kernel, or NCCL's types. Belongs to its engine.
class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  // Puts a call of this signature on its stream, whatever its buffers, and returns at once. Errors: the
  // engine's failure or the group's; unsupported, if the stream is being captured. Nothing is on the stream
  // then.
  virtual Result<WorkRef> start(const Call& call) = 0;
};

// Threading: one thread at a time, the one that submits to the group.
class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;
  // Why only a rule or an argument may choose this engine. Empty: its price may, too.
  virtual std::string_view reservation() const { return {}; }
  // `algorithm`: of the catalogue; empty where the engine has no algorithms or decides itself. Local. Errors:
  // unsupported, with the reason; equal on all ranks, so that all fall back to the same engine.
  virtual Result<std::unique_ptr<PreparedCall>> prepare(const Call& call, std::string_view algorithm) = 0;
  // See Registration; null where nothing is gained by it. Errors: those of the engine's library.
  virtual Result<std::unique_ptr<Registration>> register_buffer(const void* /*memory*/,
                                                                std::size_t /*bytes*/) {
    return std::unique_ptr<Registration>();
  }
  // The engine of a part of the group, made of this one: ranks of one `color` form the group of `services`,
  // ordered by `key`. Collective over this engine's group; null for a negative color, or where parts are made
  // anew. Waits for calls under way. Errors: the group's failure.
  virtual Result<std::unique_ptr<DeviceEngine>> split(GroupServices& /*services*/, int /*color*/,
                                                      int /*key*/) {
    return std::unique_ptr<DeviceEngine>();
  }
};

// Collective: all ranks get an engine, or all get an error (unsupported, with the reason and its rank; or the
// group's failure). `services` outlives the engine.
using EngineFactory = Result<std::unique_ptr<DeviceEngine>> (*)(GroupServices& services, int device);

// A prepared call of `Engine`, which has start(call, prepared).
template <class Engine, class Prepared>
class PreparedFor final : public PreparedCall {
 public:
  PreparedFor(Engine& engine, Prepared prepared) : engine_(engine), prepared_(std::move(prepared)) {}
  Result<WorkRef> start(const Call& call) override { return engine_.start(call, prepared_); }

 private:
  Engine& engine_;
  const Prepared prepared_;
};

}  // namespace tutti::cuda

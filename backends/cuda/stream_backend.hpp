// What backends have in common that put calls on streams and leave them there: checks, works that end with
// the device, one failure for all. Knows no collective, and not how a call is carried out.
#pragma once

#include <string>
#include <string_view>

#include "backends/backend.hpp"
#include "backends/cuda/stream_watch.hpp"

namespace tutti::cuda {

class StreamBackend : public Backend, protected StreamWatch::Carrier {
 public:
  const BackendCaps& caps() const final { return caps_; }
  Result<WorkRef> start(const Call& call, const Choice& choice) final;
  CachedCall* cached_call(const Call& /*call*/) final { return nullptr; }

 protected:
  // `by`: who carries calls out, for messages ("kernels"); `thread`: the name of the one that watches
  // streams.
  StreamBackend(GroupServices& services, int device, BackendCaps caps, const char* by, const char* thread)
      : services_(services),
        device_(device),
        caps_(std::move(caps)),
        by_(by),
        watch_(services, *this, device, thread) {}
  // Derived classes call it first in their destructors: abort() is theirs.
  void close() { watch_.close(services_.timeout()); }

  // Of a supported call: ok, or why it cannot be carried out as `choice` says. Nothing is put on a stream.
  virtual Status prepare(const Call& call, const Choice& choice) = 0;
  // Puts the prepared call on its stream, in the context of the device. An error fails the group.
  virtual Status put(const Call& call, CUstream stream) = 0;

  GroupServices& services_;

 private:
  // StreamWatch::Carrier
  Status diagnose() final { return {}; }

  const int device_;
  const BackendCaps caps_;
  const char* const by_;
  StreamWatch watch_;
};

}  // namespace tutti::cuda

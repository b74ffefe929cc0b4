// `tutti explain --device cuda`: the engines for a call on buffers of GPUs, as a table. Knows no rule and no
// price, and asks no driver: this machine needs no GPU.
#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/engine_explanation.hpp"

namespace tutti::tool {

struct DeviceAsked {
  Question question;
  DeviceSetting setting;
  GpuLink link = GpuLink::nvlink;
  std::string algorithm;  // the call's own argument
  bool is_json = false;
};

// Prints the explanation; returns the exit status.
int explain_on_devices(const Selector& selector, const DeviceAsked& asked);

}  // namespace tutti::tool

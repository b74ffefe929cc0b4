// `tutti explain --device cuda`: the carriers of a call on buffers of GPUs, in words. Knows no rule and no
// price itself, and asks no driver: the GPUs may be ones that nobody here owns.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/selection/explain.hpp"

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

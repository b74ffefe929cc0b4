// The engines whose ranks access each other's memory on GPUs: allreduce by kernels, in one shot and two, and
// all collectives by schedules over CUDA IPC.
#pragma once

#include <memory>

#include "backends/cuda/device_engine.hpp"

namespace tutti::cuda {

// `one_shot` and `two_shot`, named by the algorithm of each call. An EngineFactory, for groups whose ranks
// share a machine. A call that was on the device for the group's timeout fails the group.
Result<std::unique_ptr<DeviceEngine>> make_kernel_engine(GroupServices& services, int device);
// `ipc_schedule`: every call names an algorithm of the catalogue. Likewise; for ranks that are processes, or
// threads with a device each.
Result<std::unique_ptr<DeviceEngine>> make_schedule_engine(GroupServices& services, int device);

}  // namespace tutti::cuda

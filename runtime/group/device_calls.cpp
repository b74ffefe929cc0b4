// Where buffers lie, and the group as its device backend sees it.
#include "runtime/group/device_calls.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "backends/registry.hpp"

namespace tutti {

Status locate(std::string_view name, Call& call, std::uint32_t rank, std::uint32_t size, Memory memory) {
  struct Seen {
    std::string_view what;
    const void* memory;
    Extent extent;
    int device = -1;
  };
  Seen seen[] = {{"input", call.input, input_extent(call, rank, size)},
                 {"output", call.output, output_extent(call, rank, size)}};
  const Seen* first = nullptr;
  for (Seen& buffer : seen) {
    if (!buffer.extent.is_used || buffer.memory == nullptr) continue;
    buffer.device = device_of(buffer.memory);
    if (first == nullptr) first = &buffer;
    if (first->device == buffer.device) continue;
    const auto place = [](int device) {
      return device < 0 ? std::string("in host memory") : fmt::format("on GPU {}", device);
    };
    return invalid_argument(fmt::format("{}: {} is {}, {} is {}; all buffers of a call must be in one place",
                                        name, first->what, place(first->device), buffer.what,
                                        place(buffer.device)));
  }
  int device = first == nullptr ? -1 : first->device;
  if (memory == Memory::device && first == nullptr) device = current_device();
  if (memory == Memory::device && device < 0) {
    if (const auto found = probe_backend("cuda"); !found)
      return found.status().with_context(fmt::format("{}: memory: the call is said to be on a GPU", name));
    return invalid_argument(
        fmt::format("{}: memory: the call is said to be on a GPU, but {}", name,
                    first == nullptr ? "this thread uses none" : "its buffers are in host memory"));
  }
  call.is_device = device >= 0 && call.collective != Collective::barrier;
  call.device = call.is_device ? device : -1;
  return {};
}

Status check_nccl(WireSecurity security, std::uint32_t nodes) {
  if (nodes == 1 || security == WireSecurity::off) return {};
  return unsupported(fmt::format(
      "TUTTI_WIRE_SECURITY={}: tutti can neither authenticate nor encrypt the traffic of NCCL between "
      "nodes; leave such calls to staging, or use TUTTI_WIRE_SECURITY=off in a trusted network",
      to_string(security)));
}

Status check_device_memory(const void* memory, std::size_t bytes) {
  look_for_cuda();
  if (memory != nullptr && bytes != 0 && device_of(memory) >= 0) return {};
  return invalid_argument(
      fmt::format("register_buffer: memory: expected memory of a GPU, got {} bytes at {}{}", bytes, memory,
                  memory == nullptr || bytes == 0 ? "" : ", which is the host's"));
}

Result<std::unique_ptr<DeviceCalls>> DeviceCalls::make(CommGroup::Impl& group) {
  std::unique_ptr<DeviceCalls> made(new DeviceCalls(group));
  std::map<int, std::uint32_t> ranks_on;  // by node
  for (const int member : group.world_ranks())
    ++ranks_on[group.world().domains().nodes[static_cast<std::size_t>(member)]];
  DeviceOptions options{group.selector()};
  options.nodes = static_cast<std::uint32_t>(ranks_on.size());
  for (const auto& [node, count] : ranks_on) options.ranks_per_node = std::max(options.ranks_per_node, count);
  options.trace = group.world().engine().trace();
  options.nccl_refusal = check_nccl(group.world().keys().security, options.nodes);
  auto backend = make_device_backend(*made, options);
  if (!backend) return backend.status();
  made->backend_ = *std::move(backend);
  return made;
}

Status DeviceCalls::allgather(const void* mine, void* all, std::size_t bytes) {
  Call swap;
  swap.collective = Collective::allgather;
  swap.dtype = Dtype::u8;
  swap.input = mine;
  swap.output = all;
  swap.count = bytes;
  try {
    group_.internal_stream(CommGroup::Impl::Purpose::device_exchange).run(swap, {});
  } catch (const Error& error) {
    return Status(error.code(), error.what(), error.peer());
  }
  return {};
}

}  // namespace tutti

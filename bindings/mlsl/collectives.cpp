// MLSL's collectives as calls of tutti. Knows no layer.
#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/distribution.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/requests.hpp"

namespace {

using tutti::CommGroup;
using tutti::mlsl::bytes_of;
using tutti::mlsl::dtype_of;
using tutti::mlsl::impl;
using tutti::mlsl::op_of;
using tutti::mlsl::Request;

using Numbers = std::vector<std::uint64_t>;

Numbers numbers(const CommGroup& group, const std::size_t* values) { return {values, values + group.size()}; }

char* at(void* buffer, std::size_t element, MLSL::DataType type) {
  return static_cast<char*>(buffer) + element * bytes_of(type);
}

int root_of(std::size_t index) { return static_cast<int>(index); }

}  // namespace

namespace MLSL {

std::size_t Distribution::GetProcessIdx(GroupType groupType) {
  return static_cast<std::size_t>(impl(this).group(groupType).rank());
}

std::size_t Distribution::GetProcessCount(GroupType groupType) {
  return static_cast<std::size_t>(impl(this).group(groupType).size());
}

CommReq* Distribution::Bcast(void* buffer, std::size_t count, DataType dataType, std::size_t rootIdx,
                             GroupType groupType) {
  return impl(this).start("Bcast", groupType, [&](const CommGroup& group, Request& request) {
    request.add(group.ibroadcast(buffer, count, dtype_of(dataType), root_of(rootIdx)));
  });
}

CommReq* Distribution::Reduce(void* sendBuffer, void* recvBuffer, std::size_t count, DataType dataType,
                              ReductionType redType, std::size_t rootIdx, GroupType groupType) {
  return impl(this).start("Reduce", groupType, [&](const CommGroup& group, Request& request) {
    request.add(
        group.ireduce(sendBuffer, recvBuffer, count, dtype_of(dataType), op_of(redType), root_of(rootIdx)));
  });
}

CommReq* Distribution::AllReduce(void* sendBuffer, void* recvBuffer, std::size_t count, DataType dataType,
                                 ReductionType redType, GroupType groupType) {
  return impl(this).start("AllReduce", groupType, [&](const CommGroup& group, Request& request) {
    add_allreduce(request, group, sendBuffer, recvBuffer, count, dtype_of(dataType), op_of(redType));
  });
}

CommReq* Distribution::AlltoAll(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                                GroupType groupType) {
  return impl(this).start("AlltoAll", groupType, [&](const CommGroup& group, Request& request) {
    request.add(group.ialltoall(sendBuffer, recvBuffer, sendCount, dtype_of(dataType)));
  });
}

CommReq* Distribution::AlltoAllv(void* sendBuffer, std::size_t* sendCounts, std::size_t* sendOffsets,
                                 void* recvBuffer, std::size_t* recvCounts, std::size_t* recvOffsets,
                                 DataType dataType, GroupType groupType) {
  return impl(this).start("AlltoAllv", groupType, [&](const CommGroup& group, Request& request) {
    request.add(group.ialltoallv(sendBuffer, numbers(group, sendCounts), numbers(group, sendOffsets),
                                 recvBuffer, numbers(group, recvCounts), numbers(group, recvOffsets),
                                 dtype_of(dataType)));
  });
}

// Equal buffers mean "in place" in the four following calls: a rank's block lies at its place in the longer one.

CommReq* Distribution::Gather(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                              std::size_t rootIdx, GroupType groupType) {
  return impl(this).start("Gather", groupType, [&](const CommGroup& group, Request& request) {
    const bool is_in_place = sendBuffer == recvBuffer && group.rank() == root_of(rootIdx);
    const void* input = is_in_place ? at(recvBuffer, rootIdx * sendCount, dataType) : sendBuffer;
    request.add(group.igather(input, recvBuffer, sendCount, dtype_of(dataType), root_of(rootIdx)));
  });
}

CommReq* Distribution::AllGather(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                                 GroupType groupType) {
  return impl(this).start("AllGather", groupType, [&](const CommGroup& group, Request& request) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const void* input = sendBuffer == recvBuffer ? at(recvBuffer, rank * sendCount, dataType) : sendBuffer;
    request.add(group.iallgather(input, recvBuffer, sendCount, dtype_of(dataType)));
  });
}

CommReq* Distribution::AllGatherv(void* sendBuffer, std::size_t sendCount, void* recvBuffer,
                                  std::size_t* recvCounts, DataType dataType, GroupType groupType) {
  return impl(this).start("AllGatherv", groupType, [&](const CommGroup& group, Request& request) {
    const auto rank = static_cast<std::size_t>(group.rank());
    if (sendCount != recvCounts[rank])
      tutti::mlsl::fail("AllGatherv: sendCount is " + std::to_string(sendCount) + ", but recvCounts[" +
                        std::to_string(rank) + "], of this rank, is " + std::to_string(recvCounts[rank]));
    std::size_t before = 0;
    for (std::size_t other = 0; other < rank; ++other) before += recvCounts[other];
    const void* input = sendBuffer == recvBuffer ? at(recvBuffer, before, dataType) : sendBuffer;
    request.add(group.iallgatherv(input, recvBuffer, numbers(group, recvCounts), {}, dtype_of(dataType)));
  });
}

CommReq* Distribution::Scatter(void* sendBuffer, void* recvBuffer, std::size_t recvCount, DataType dataType,
                               std::size_t rootIdx, GroupType groupType) {
  return impl(this).start("Scatter", groupType, [&](const CommGroup& group, Request& request) {
    const bool is_in_place = sendBuffer == recvBuffer && group.rank() == root_of(rootIdx);
    void* output = is_in_place ? at(sendBuffer, rootIdx * recvCount, dataType) : recvBuffer;
    request.add(group.iscatter(sendBuffer, output, recvCount, dtype_of(dataType), root_of(rootIdx)));
  });
}

// In place the result lies at the start of the buffer, where other ranks' blocks may still be needed.
CommReq* Distribution::ReduceScatter(void* sendBuffer, void* recvBuffer, std::size_t recvCount,
                                     DataType dataType, ReductionType redType, GroupType groupType) {
  return impl(this).start("ReduceScatter", groupType, [&](const CommGroup& group, Request& request) {
    void* output = recvBuffer;
    if (sendBuffer == recvBuffer) {
      const std::size_t bytes = recvCount * bytes_of(dataType);
      auto result = std::make_shared<std::vector<char>>(bytes);
      output = result->data();
      request.at_end([result, recvBuffer] {
        std::copy(result->begin(), result->end(), static_cast<char*>(recvBuffer));
      });
    }
    request.add(group.ireduce_scatter(sendBuffer, output, recvCount, dtype_of(dataType), op_of(redType)));
  });
}

void Distribution::Barrier(GroupType groupType) {
  tutti::mlsl::guarded("Barrier", [&] { impl(this).group(groupType).barrier(); });
}

}  // namespace MLSL

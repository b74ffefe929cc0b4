// MLSL's collectives as calls of tutti. Knows no layer.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/distribution.hpp"
#include "bindings/mlsl/environment.hpp"
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

// Makes a request of the environment's and submits to it.
template <class Submit>
MLSL::CommReq* start(MLSL::Distribution* distribution, const char* name, MLSL::GroupType type,
                     const Submit& submit) {
  return tutti::mlsl::guarded(name, [&] {
    auto request = std::make_unique<Request>(name);
    request->begin();
    submit(impl(distribution).group(type), *request);
    return tutti::mlsl::environment().keep(std::move(request));
  });
}

}  // namespace

namespace MLSL {

std::size_t Distribution::GetProcessIdx(GroupType group_type) {
  return static_cast<std::size_t>(impl(this).group(group_type).rank());
}

std::size_t Distribution::GetProcessCount(GroupType group_type) {
  return static_cast<std::size_t>(impl(this).group(group_type).size());
}

CommReq* Distribution::Bcast(void* buffer, std::size_t count, DataType data_type, std::size_t root_idx,
                             GroupType group_type) {
  return start(this, "Bcast", group_type, [&](const CommGroup& group, Request& request) {
    request.add(group.ibroadcast(buffer, count, dtype_of(data_type), root_of(root_idx)));
  });
}

CommReq* Distribution::Reduce(void* send_buffer, void* recv_buffer, std::size_t count, DataType data_type,
                              ReductionType red_type, std::size_t root_idx, GroupType group_type) {
  return start(this, "Reduce", group_type, [&](const CommGroup& group, Request& request) {
    request.add(group.ireduce(send_buffer, recv_buffer, count, dtype_of(data_type), op_of(red_type),
                              root_of(root_idx)));
  });
}

CommReq* Distribution::AllReduce(void* send_buffer, void* recv_buffer, std::size_t count, DataType data_type,
                                 ReductionType red_type, GroupType group_type) {
  return start(this, "AllReduce", group_type, [&](const CommGroup& group, Request& request) {
    add_allreduce(request, group, send_buffer, recv_buffer, count, dtype_of(data_type), op_of(red_type));
  });
}

CommReq* Distribution::AlltoAll(void* send_buffer, std::size_t send_count, void* recv_buffer,
                                DataType data_type, GroupType group_type) {
  return start(this, "AlltoAll", group_type, [&](const CommGroup& group, Request& request) {
    request.add(group.ialltoall(send_buffer, recv_buffer, send_count, dtype_of(data_type)));
  });
}

CommReq* Distribution::AlltoAllv(void* send_buffer, std::size_t* send_counts, std::size_t* send_offsets,
                                 void* recv_buffer, std::size_t* recv_counts, std::size_t* recv_offsets,
                                 DataType data_type, GroupType group_type) {
  return start(this, "AlltoAllv", group_type, [&](const CommGroup& group, Request& request) {
    request.add(group.ialltoallv(send_buffer, numbers(group, send_counts), numbers(group, send_offsets),
                                 recv_buffer, numbers(group, recv_counts), numbers(group, recv_offsets),
                                 dtype_of(data_type)));
  });
}

// Equal buffers mean "in place" in the four following calls: a rank's block lies at its place in the longer one.

CommReq* Distribution::Gather(void* send_buffer, std::size_t send_count, void* recv_buffer,
                              DataType data_type, std::size_t root_idx, GroupType group_type) {
  return start(this, "Gather", group_type, [&](const CommGroup& group, Request& request) {
    const bool is_in_place = send_buffer == recv_buffer && group.rank() == root_of(root_idx);
    const void* input = is_in_place ? at(recv_buffer, root_idx * send_count, data_type) : send_buffer;
    request.add(group.igather(input, recv_buffer, send_count, dtype_of(data_type), root_of(root_idx)));
  });
}

CommReq* Distribution::AllGather(void* send_buffer, std::size_t send_count, void* recv_buffer,
                                 DataType data_type, GroupType group_type) {
  return start(this, "AllGather", group_type, [&](const CommGroup& group, Request& request) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const void* input =
        send_buffer == recv_buffer ? at(recv_buffer, rank * send_count, data_type) : send_buffer;
    request.add(group.iallgather(input, recv_buffer, send_count, dtype_of(data_type)));
  });
}

CommReq* Distribution::AllGatherv(void* send_buffer, std::size_t send_count, void* recv_buffer,
                                  std::size_t* recv_counts, DataType data_type, GroupType group_type) {
  return start(this, "AllGatherv", group_type, [&](const CommGroup& group, Request& request) {
    const auto rank = static_cast<std::size_t>(group.rank());
    if (send_count != recv_counts[rank])
      tutti::mlsl::fail("AllGatherv: send_count is " + std::to_string(send_count) + ", but recv_counts[" +
                        std::to_string(rank) + "], of this rank, is " + std::to_string(recv_counts[rank]));
    std::size_t before = 0;
    for (std::size_t other = 0; other < rank; ++other) before += recv_counts[other];
    const void* input = send_buffer == recv_buffer ? at(recv_buffer, before, data_type) : send_buffer;
    request.add(group.iallgatherv(input, recv_buffer, numbers(group, recv_counts), {}, dtype_of(data_type)));
  });
}

CommReq* Distribution::Scatter(void* send_buffer, void* recv_buffer, std::size_t recv_count,
                               DataType data_type, std::size_t root_idx, GroupType group_type) {
  return start(this, "Scatter", group_type, [&](const CommGroup& group, Request& request) {
    const bool is_in_place = send_buffer == recv_buffer && group.rank() == root_of(root_idx);
    void* output = is_in_place ? at(send_buffer, root_idx * recv_count, data_type) : recv_buffer;
    request.add(group.iscatter(send_buffer, output, recv_count, dtype_of(data_type), root_of(root_idx)));
  });
}

// In place the result lies at the start of the buffer, where other ranks' blocks may still be needed.
CommReq* Distribution::ReduceScatter(void* send_buffer, void* recv_buffer, std::size_t recv_count,
                                     DataType data_type, ReductionType red_type, GroupType group_type) {
  return start(this, "ReduceScatter", group_type, [&](const CommGroup& group, Request& request) {
    void* output = recv_buffer;
    if (send_buffer == recv_buffer) {
      const std::size_t bytes = recv_count * bytes_of(data_type);
      auto result = std::make_shared<std::vector<char>>(bytes);
      output = result->data();
      request.at_end([result, recv_buffer] {
        std::copy(result->begin(), result->end(), static_cast<char*>(recv_buffer));
      });
    }
    request.add(group.ireduce_scatter(send_buffer, output, recv_count, dtype_of(data_type), op_of(red_type)));
  });
}

void Distribution::Barrier(GroupType group_type) {
  tutti::mlsl::guarded("Barrier", [&] { impl(this).group(group_type).barrier(); });
}

}  // namespace MLSL

// The C interface of blocking calls: each is the call of tutti.hpp of the same name, with converted
// arguments. Knows the public C++ interface only; tutti.h has the contracts.
#include "bindings/c/handles.hpp"

using namespace tutti::c;
using tutti::CommGroup;

namespace {

template <class Call>
tutti_status_t run(const char* name, tutti_group_t group, const tutti_call_options_t* options,
                   const Call& call) {
  return guarded([&] { call(group_of(group), CallArguments(name, options)); });
}

}  // namespace

tutti_status_t tutti_allreduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options) {
  return run("allreduce", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.allreduce(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_broadcast(void* buffer, size_t count, tutti_dtype_t dtype, int root, tutti_group_t group,
                               const tutti_call_options_t* options) {
  return run("broadcast", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.broadcast(buffer, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_reduce(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                            int root, tutti_group_t group, const tutti_call_options_t* options) {
  return run("reduce", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.reduce(input, output, count, call.dtype(dtype), call.reduction(op, dtype), root, call.options());
  });
}

tutti_status_t tutti_allgather(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_group_t group, const tutti_call_options_t* options) {
  return run("allgather", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.allgather(input, output, count, call.dtype(dtype), call.options());
  });
}

tutti_status_t tutti_allgatherv(const void* input, void* output, const uint64_t* counts,
                                const uint64_t* displacements, tutti_dtype_t dtype, tutti_group_t group,
                                const tutti_call_options_t* options) {
  return run("allgatherv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.allgatherv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype),
                        call.options());
  });
}

tutti_status_t tutti_reduce_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                    tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options) {
  return run("reduce_scatter", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.reduce_scatter(input, output, count, call.dtype(dtype), call.reduction(op, dtype),
                            call.options());
  });
}

tutti_status_t tutti_reduce_scatterv(const void* input, void* output, const uint64_t* counts,
                                     tutti_dtype_t dtype, tutti_op_t op, tutti_group_t group,
                                     const tutti_call_options_t* options) {
  return run("reduce_scatterv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.reduce_scatterv(input, output, list_of(g, counts), call.dtype(dtype), call.reduction(op, dtype),
                             call.options());
  });
}

tutti_status_t tutti_alltoall(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                              tutti_group_t group, const tutti_call_options_t* options) {
  return run("alltoall", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.alltoall(input, output, count, call.dtype(dtype), call.options());
  });
}

tutti_status_t tutti_alltoallv(const void* input, const uint64_t* input_counts,
                               const uint64_t* input_displacements, void* output,
                               const uint64_t* output_counts, const uint64_t* output_displacements,
                               tutti_dtype_t dtype, tutti_group_t group,
                               const tutti_call_options_t* options) {
  return run("alltoallv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.alltoallv(input, list_of(g, input_counts), list_of(g, input_displacements), output,
                       list_of(g, output_counts), list_of(g, output_displacements), call.dtype(dtype),
                       call.options());
  });
}

tutti_status_t tutti_gather(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                            tutti_group_t group, const tutti_call_options_t* options) {
  return run("gather", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.gather(input, output, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_gatherv(const void* input, void* output, const uint64_t* counts,
                             const uint64_t* displacements, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options) {
  return run("gatherv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.gatherv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype), root,
                     call.options());
  });
}

tutti_status_t tutti_gatherv_root(const void* input, size_t own_count, void* output, const uint64_t* counts,
                                  const uint64_t* displacements, tutti_dtype_t dtype, int root,
                                  tutti_group_t group, const tutti_call_options_t* options) {
  return run("gatherv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.gatherv(input, own_count, output, list_of(g, counts), list_of(g, displacements),
                     call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options) {
  return run("scatter", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.scatter(input, output, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_scatterv(const void* input, void* output, const uint64_t* counts,
                              const uint64_t* displacements, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options) {
  return run("scatterv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.scatterv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype), root,
                      call.options());
  });
}

tutti_status_t tutti_scatterv_root(const void* input, const uint64_t* counts, const uint64_t* displacements,
                                   void* output, size_t own_count, tutti_dtype_t dtype, int root,
                                   tutti_group_t group, const tutti_call_options_t* options) {
  return run("scatterv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.scatterv(input, list_of(g, counts), list_of(g, displacements), output, own_count,
                      call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_barrier(tutti_group_t group, const tutti_call_options_t* options) {
  return run("barrier", group, options,
             [&](const CommGroup& g, const CallArguments& call) { return g.barrier(call.options()); });
}

tutti_status_t tutti_scan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                          tutti_group_t group, const tutti_call_options_t* options) {
  return run("scan", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.scan(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_exscan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                            tutti_group_t group, const tutti_call_options_t* options) {
  return run("exscan", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.exscan(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_send(const void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                          tutti_group_t group, const tutti_call_options_t* options) {
  return run("send", group, options, [&](const CommGroup& g, const CallArguments& call) {
    return g.send(buffer, count, call.dtype(dtype), peer, tag, call.options());
  });
}

tutti_status_t tutti_recv(void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                          tutti_group_t group, const tutti_call_options_t* options, int* source) {
  return run("recv", group, options, [&](const CommGroup& g, const CallArguments& call) {
    const int from = g.recv(buffer, count, call.dtype(dtype), peer, tag, call.options());
    if (source != nullptr) *source = from;
  });
}

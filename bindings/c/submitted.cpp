// The C interface of submitted calls: each is the call of tutti.hpp of the same name, with converted
// arguments. Knows the public C++ interface only; tutti.h has the contracts.
#include "bindings/c/handles.hpp"

using namespace tutti::c;
using tutti::CommGroup;

namespace {

template <class Call>
tutti_status_t start(const char* name, tutti_group_t group, const tutti_call_options_t* options,
                     tutti_work_t* work, const Call& call) {
  return guarded([&] {
    check_place(name, "work", work);
    // First the handle: an operation that was submitted must not be lost.
    auto handle = std::make_unique<TuttiWork>();
    handle->work = call(group_of(group), CallArguments(name, options));
    *work = handle.release();
  });
}

}  // namespace

tutti_status_t tutti_iallreduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work) {
  return start("allreduce", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iallreduce(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_ibroadcast(void* buffer, size_t count, tutti_dtype_t dtype, int root,
                                tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work) {
  return start("broadcast", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ibroadcast(buffer, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_ireduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                             tutti_op_t op, int root, tutti_group_t group,
                             const tutti_call_options_t* options, tutti_work_t* work) {
  return start("reduce", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ireduce(input, output, count, call.dtype(dtype), call.reduction(op, dtype), root,
                     call.options());
  });
}

tutti_status_t tutti_iallgather(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work) {
  return start("allgather", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iallgather(input, output, count, call.dtype(dtype), call.options());
  });
}

tutti_status_t tutti_iallgatherv(const void* input, void* output, const uint64_t* counts,
                                 const uint64_t* displacements, tutti_dtype_t dtype, tutti_group_t group,
                                 const tutti_call_options_t* options, tutti_work_t* work) {
  return start("allgatherv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iallgatherv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype),
                         call.options());
  });
}

tutti_status_t tutti_ireduce_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                     tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                                     tutti_work_t* work) {
  return start("reduce_scatter", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ireduce_scatter(input, output, count, call.dtype(dtype), call.reduction(op, dtype),
                             call.options());
  });
}

tutti_status_t tutti_ireduce_scatterv(const void* input, void* output, const uint64_t* counts,
                                      tutti_dtype_t dtype, tutti_op_t op, tutti_group_t group,
                                      const tutti_call_options_t* options, tutti_work_t* work) {
  return start("reduce_scatterv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ireduce_scatterv(input, output, list_of(g, counts), call.dtype(dtype), call.reduction(op, dtype),
                              call.options());
  });
}

tutti_status_t tutti_ialltoall(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("alltoall", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ialltoall(input, output, count, call.dtype(dtype), call.options());
  });
}

tutti_status_t tutti_ialltoallv(const void* input, const uint64_t* input_counts,
                                const uint64_t* input_displacements, void* output,
                                const uint64_t* output_counts, const uint64_t* output_displacements,
                                tutti_dtype_t dtype, tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work) {
  return start("alltoallv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.ialltoallv(input, list_of(g, input_counts), list_of(g, input_displacements), output,
                        list_of(g, output_counts), list_of(g, output_displacements), call.dtype(dtype),
                        call.options());
  });
}

tutti_status_t tutti_igather(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("gather", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.igather(input, output, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_igatherv(const void* input, void* output, const uint64_t* counts,
                              const uint64_t* displacements, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("gatherv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.igatherv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype), root,
                      call.options());
  });
}

tutti_status_t tutti_igatherv_root(const void* input, size_t own_count, void* output, const uint64_t* counts,
                                   const uint64_t* displacements, tutti_dtype_t dtype, int root,
                                   tutti_group_t group, const tutti_call_options_t* options,
                                   tutti_work_t* work) {
  return start("gatherv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.igatherv(input, own_count, output, list_of(g, counts), list_of(g, displacements),
                      call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_iscatter(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("scatter", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iscatter(input, output, count, call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_iscatterv(const void* input, void* output, const uint64_t* counts,
                               const uint64_t* displacements, tutti_dtype_t dtype, int root,
                               tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("scatterv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iscatterv(input, output, list_of(g, counts), list_of(g, displacements), call.dtype(dtype), root,
                       call.options());
  });
}

tutti_status_t tutti_iscatterv_root(const void* input, const uint64_t* counts, const uint64_t* displacements,
                                    void* output, size_t own_count, tutti_dtype_t dtype, int root,
                                    tutti_group_t group, const tutti_call_options_t* options,
                                    tutti_work_t* work) {
  return start("scatterv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iscatterv(input, list_of(g, counts), list_of(g, displacements), output, own_count,
                       call.dtype(dtype), root, call.options());
  });
}

tutti_status_t tutti_ibarrier(tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("barrier", group, options, work,
               [&](const CommGroup& g, const CallArguments& call) { return g.ibarrier(call.options()); });
}

tutti_status_t tutti_iscan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                           tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("scan", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iscan(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_iexscan(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                             tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                             tutti_work_t* work) {
  return start("exscan", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.iexscan(input, output, count, call.dtype(dtype), call.reduction(op, dtype), call.options());
  });
}

tutti_status_t tutti_isend(const void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                           tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work) {
  return start("send", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
    return g.isend(buffer, count, call.dtype(dtype), peer, tag, call.options());
  });
}

tutti_status_t tutti_irecv(void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                           tutti_group_t group, const tutti_call_options_t* options, int* source,
                           tutti_work_t* work) {
  const tutti_status_t status =
      start("recv", group, options, work, [&](const CommGroup& g, const CallArguments& call) {
        return g.irecv(buffer, count, call.dtype(dtype), peer, tag, call.options());
      });
  if (status == TUTTI_OK) (*work)->source = source;
  return status;
}

// MLSL's C interface to the environment, distributions, sessions and statistics: each function calls the C++ one of the
// same name. See c_calls.hpp.
#include "bindings/mlsl/c_calls.hpp"

using tutti::mlsl::get;
using tutti::mlsl::run;

extern "C" {

int mlsl_distribution_get_process_idx(mlsl_distribution dist, mlsl_group_type group_type,
                                      size_t* process_idx) {
  return get(dist, process_idx, &MLSL::Distribution::GetProcessIdx, group_type);
}
int mlsl_distribution_get_process_count(mlsl_distribution dist, mlsl_group_type group_type,
                                        size_t* process_count) {
  return get(dist, process_count, &MLSL::Distribution::GetProcessCount, group_type);
}
int mlsl_distribution_bcast(mlsl_distribution dist, void* buffer, size_t count, mlsl_data_type data_type,
                            size_t root_idx, mlsl_group_type group_type, mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::Bcast, buffer, count, data_type, root_idx, group_type);
}
int mlsl_distribution_reduce(mlsl_distribution dist, void* send_buffer, void* recv_buffer, size_t count,
                             mlsl_data_type data_type, mlsl_reduction_type red_type, size_t root_idx,
                             mlsl_group_type group_type, mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::Reduce, send_buffer, recv_buffer, count, data_type, red_type,
             root_idx, group_type);
}
int mlsl_distribution_all_reduce(mlsl_distribution dist, void* send_buffer, void* recv_buffer, size_t count,
                                 mlsl_data_type data_type, mlsl_reduction_type red_type,
                                 mlsl_group_type group_type, mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::AllReduce, send_buffer, recv_buffer, count, data_type, red_type,
             group_type);
}
int mlsl_distribution_all_to_all(mlsl_distribution dist, void* send_buffer, size_t send_count,
                                 void* recv_buffer, mlsl_data_type data_type, mlsl_group_type group_type,
                                 mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::AlltoAll, send_buffer, send_count, recv_buffer, data_type,
             group_type);
}
int mlsl_distribution_all_to_allv(mlsl_distribution dist, void* send_buffer, size_t* send_counts,
                                  size_t* send_offsets, void* recv_buffer, size_t* recv_counts,
                                  size_t* recv_offsets, mlsl_data_type data_type, mlsl_group_type group_type,
                                  mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::AlltoAllv, send_buffer, send_counts, send_offsets, recv_buffer,
             recv_counts, recv_offsets, data_type, group_type);
}
int mlsl_distribution_gather(mlsl_distribution dist, void* send_buffer, size_t send_count, void* recv_buffer,
                             mlsl_data_type data_type, size_t root_idx, mlsl_group_type group_type,
                             mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::Gather, send_buffer, send_count, recv_buffer, data_type,
             root_idx, group_type);
}
int mlsl_distribution_all_gather(mlsl_distribution dist, void* send_buffer, size_t send_count,
                                 void* recv_buffer, mlsl_data_type data_type, mlsl_group_type group_type,
                                 mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::AllGather, send_buffer, send_count, recv_buffer, data_type,
             group_type);
}
int mlsl_distribution_scatter(mlsl_distribution dist, void* send_buffer, void* recv_buffer, size_t recv_count,
                              mlsl_data_type data_type, size_t root_idx, mlsl_group_type group_type,
                              mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::Scatter, send_buffer, recv_buffer, recv_count, data_type,
             root_idx, group_type);
}
int mlsl_distribution_reduce_scatter(mlsl_distribution dist, void* send_buffer, void* recv_buffer,
                                     size_t recv_count, mlsl_data_type data_type,
                                     mlsl_reduction_type red_type, mlsl_group_type group_type,
                                     mlsl_comm_req* req) {
  return get(dist, req, &MLSL::Distribution::ReduceScatter, send_buffer, recv_buffer, recv_count, data_type,
             red_type, group_type);
}
int mlsl_distribution_barrier(mlsl_distribution dist, mlsl_group_type group_type) {
  return run(dist, &MLSL::Distribution::Barrier, group_type);
}
int mlsl_statistics_start(mlsl_statistics stats) { return run(stats, &MLSL::Statistics::Start); }
int mlsl_statistics_stop(mlsl_statistics stats) { return run(stats, &MLSL::Statistics::Stop); }
int mlsl_statistics_reset(mlsl_statistics stats) { return run(stats, &MLSL::Statistics::Reset); }
int mlsl_statistics_is_started(mlsl_statistics stats, int* is_started) {
  return get(stats, is_started, &MLSL::Statistics::IsStarted);
}
int mlsl_statistics_is_enabled(mlsl_statistics stats, int* is_enabled) {
  return get(stats, is_enabled, &MLSL::Statistics::IsEnabled);
}
int mlsl_statistics_print(mlsl_statistics stats) { return run(stats, &MLSL::Statistics::Print); }
int mlsl_statistics_get_isolation_comm_cycles(mlsl_statistics stats, size_t op_idx,
                                              unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetIsolationCommCycles, op_idx);
}
int mlsl_statistics_get_comm_size(mlsl_statistics stats, size_t op_idx, size_t* size) {
  return get(stats, size, &MLSL::Statistics::GetCommSize, op_idx);
}
int mlsl_statistics_get_comm_cycles(mlsl_statistics stats, size_t op_idx, unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetCommCycles, op_idx);
}
int mlsl_statistics_get_compute_cycles(mlsl_statistics stats, size_t op_idx, unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetComputeCycles, op_idx);
}
int mlsl_statistics_get_total_isolation_comm_cycles(mlsl_statistics stats, unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetTotalIsolationCommCycles);
}
int mlsl_statistics_get_total_comm_size(mlsl_statistics stats, size_t* size) {
  return get(stats, size, &MLSL::Statistics::GetTotalCommSize);
}
int mlsl_statistics_get_total_comm_cycles(mlsl_statistics stats, unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetTotalCommCycles);
}
int mlsl_statistics_get_total_compute_cycles(mlsl_statistics stats, unsigned long long* cycles) {
  return get(stats, cycles, &MLSL::Statistics::GetTotalComputeCycles);
}
int mlsl_session_set_global_minibatch_size(mlsl_session session, size_t global_minibatch_size) {
  return run(session, &MLSL::Session::SetGlobalMinibatchSize, global_minibatch_size);
}
int mlsl_session_get_global_minibatch_size(mlsl_session session, size_t* global_minibatch_size) {
  return get(session, global_minibatch_size, &MLSL::Session::GetGlobalMinibatchSize);
}
int mlsl_session_get_phase_type(mlsl_session session, mlsl_phase_type* phase_type) {
  return get(session, phase_type, &MLSL::Session::GetPhaseType);
}
int mlsl_session_create_operation_reg_info(mlsl_session session, mlsl_op_type op_type,
                                           mlsl_operation_reg_info* info) {
  return get(session, info, &MLSL::Session::CreateOperationRegInfo, op_type);
}
int mlsl_session_delete_operation_reg_info(mlsl_session session, mlsl_operation_reg_info info) {
  return run(session, &MLSL::Session::DeleteOperationRegInfo, info);
}
int mlsl_session_add_operation(mlsl_session session, mlsl_operation_reg_info info, size_t* op_idx) {
  return get(session, op_idx, &MLSL::Session::AddOperation, info, nullptr);
}
int mlsl_session_add_operation_with_distribution(mlsl_session session, mlsl_operation_reg_info info,
                                                 mlsl_distribution dist, size_t* op_idx) {
  return get(session, op_idx, &MLSL::Session::AddOperation, info, dist);
}
int mlsl_session_remove_operations(mlsl_session session) {
  return run(session, &MLSL::Session::RemoveOperations);
}
int mlsl_session_get_operation_count(mlsl_session session, size_t* operation_count) {
  return get(session, operation_count, &MLSL::Session::GetOperationCount);
}
int mlsl_session_get_operation(mlsl_session session, size_t idx, mlsl_operation* op) {
  return get(session, op, &MLSL::Session::GetOperation, idx);
}
int mlsl_session_commit(mlsl_session session) { return run(session, &MLSL::Session::Commit); }
int mlsl_session_get_stats(mlsl_session session, mlsl_statistics* stats) {
  return get(session, stats, &MLSL::Session::GetStats);
}
int mlsl_environment_get_env(mlsl_environment* env) {
  if (env == nullptr) return CMLSL_FAILURE;
  *env = tutti::mlsl::handle_of(&MLSL::Environment::GetEnv());
  return CMLSL_SUCCESS;
}
int mlsl_environment_get_version(int* version) {
  if (version == nullptr) return CMLSL_FAILURE;
  *version = MLSL::Environment::GetVersion();
  return CMLSL_SUCCESS;
}
int mlsl_environment_configure(mlsl_environment env, const char* config) {
  return run(env, &MLSL::Environment::Configure, config);
}
int mlsl_environment_init(mlsl_environment env, int* argc, char** argv[]) {
  return run(env, &MLSL::Environment::Init, argc, argv);
}
int mlsl_environment_finalize(mlsl_environment env) { return run(env, &MLSL::Environment::Finalize); }
int mlsl_environment_is_initialized(mlsl_environment env, int* is_initialized) {
  return get(env, is_initialized, &MLSL::Environment::IsInitialized);
}
int mlsl_environment_get_process_idx(mlsl_environment env, size_t* process_idx) {
  return get(env, process_idx, &MLSL::Environment::GetProcessIdx);
}
int mlsl_environment_get_process_count(mlsl_environment env, size_t* process_count) {
  return get(env, process_count, &MLSL::Environment::GetProcessCount);
}
int mlsl_environment_create_session(mlsl_environment env, mlsl_phase_type phase_type, mlsl_session* session) {
  return get(env, session, &MLSL::Environment::CreateSession, phase_type);
}
int mlsl_environment_delete_session(mlsl_environment env, mlsl_session session) {
  return run(env, &MLSL::Environment::DeleteSession, session);
}
int mlsl_environment_create_distribution(mlsl_environment env, size_t data_partitions,
                                         size_t model_partitions, mlsl_distribution* dist) {
  return get(env, dist, &MLSL::Environment::CreateDistribution, data_partitions, model_partitions);
}
int mlsl_environment_delete_distribution(mlsl_environment env, mlsl_distribution dist) {
  return run(env, &MLSL::Environment::DeleteDistribution, dist);
}
int mlsl_environment_wait(mlsl_environment env, mlsl_comm_req req) {
  return run(env, &MLSL::Environment::Wait, req);
}
int mlsl_environment_test(mlsl_environment env, mlsl_comm_req req, int* is_completed) {
  bool is_complete = false;
  const int status =
      is_completed == nullptr ? CMLSL_FAILURE : run(env, &MLSL::Environment::Test, req, &is_complete);
  if (status == CMLSL_SUCCESS) *is_completed = is_complete ? 1 : 0;
  return status;
}
int mlsl_environment_alloc(mlsl_environment env, size_t size, size_t alignment, void** ptr) {
  return get(env, ptr, &MLSL::Environment::Alloc, size, alignment);
}
int mlsl_environment_free(mlsl_environment env, void* ptr) { return run(env, &MLSL::Environment::Free, ptr); }
int mlsl_environment_set_quantization_params(mlsl_environment env, mlsl_quant_params* params) {
  return run(env, &MLSL::Environment::SetQuantizationParams, reinterpret_cast<MLSL::QuantParams*>(params));
}
int mlsl_environment_get_quantization_params(mlsl_environment env, mlsl_quant_params* params) {
  return get(env, params, &MLSL::Environment::GetQuantizationParams);
}

}  // extern "C"

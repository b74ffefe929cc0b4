// MLSL's C interface to layers: each function calls the C++ one of the same name. See c_calls.hpp.
#include "bindings/mlsl/c_calls.hpp"

using tutti::mlsl::get;
using tutti::mlsl::run;

extern "C" {

int mlsl_comm_block_info_get_mb_offset(mlsl_comm_block_info block, size_t* mb_offset) {
  return get(block, mb_offset, &MLSL::CommBlockInfo::GetMbOffset);
}
int mlsl_comm_block_info_get_mb_count(mlsl_comm_block_info block, size_t* mb_count) {
  return get(block, mb_count, &MLSL::CommBlockInfo::GetMbCount);
}
int mlsl_comm_block_info_get_fm_offset(mlsl_comm_block_info block, size_t* fm_offset) {
  return get(block, fm_offset, &MLSL::CommBlockInfo::GetFmOffset);
}
int mlsl_comm_block_info_get_fm_count(mlsl_comm_block_info block, size_t* fm_count) {
  return get(block, fm_count, &MLSL::CommBlockInfo::GetFmCount);
}
int mlsl_comm_block_info_get_fm_size(mlsl_comm_block_info block, size_t* fm_size) {
  return get(block, fm_size, &MLSL::CommBlockInfo::GetFmSize);
}
int mlsl_comm_block_info_get_data_type(mlsl_comm_block_info block, mlsl_data_type* data_type) {
  return get(block, data_type, &MLSL::CommBlockInfo::GetDataType);
}
int mlsl_comm_block_info_get_buf_offset(mlsl_comm_block_info block, size_t* buf_offset) {
  return get(block, buf_offset, &MLSL::CommBlockInfo::GetBufOffset);
}
int mlsl_activation_get_global_fm_count(mlsl_activation act, size_t* global_fm_count) {
  return get(act, global_fm_count, &MLSL::Activation::GetGlobalFmCount);
}
int mlsl_activation_get_global_fm_offset(mlsl_activation act, size_t* global_fm_offset) {
  return get(act, global_fm_offset, &MLSL::Activation::GetGlobalFmOffset);
}
int mlsl_activation_get_local_fm_count(mlsl_activation act, size_t* local_fm_count) {
  return get(act, local_fm_count, &MLSL::Activation::GetLocalFmCount);
}
int mlsl_activation_get_pack_block_count(mlsl_activation act, size_t* pack_block_count) {
  return get(act, pack_block_count, &MLSL::Activation::GetPackBlockCount);
}
int mlsl_activation_get_unpack_block_count(mlsl_activation act, size_t* unpack_block_count) {
  return get(act, unpack_block_count, &MLSL::Activation::GetUnpackBlockCount);
}
int mlsl_activation_get_pack_block(mlsl_activation act, size_t idx, mlsl_comm_block_info* block) {
  return get(act, block, &MLSL::Activation::GetPackBlock, idx);
}
int mlsl_activation_get_unpack_block(mlsl_activation act, size_t idx, mlsl_comm_block_info* block) {
  return get(act, block, &MLSL::Activation::GetUnpackBlock, idx);
}
int mlsl_activation_get_data_type(mlsl_activation act, mlsl_data_type* data_type) {
  return get(act, data_type, &MLSL::Activation::GetDataType);
}
int mlsl_activation_get_fm_size(mlsl_activation act, size_t* fm_size) {
  return get(act, fm_size, &MLSL::Activation::GetFmSize);
}
int mlsl_activation_get_comm_buf(mlsl_activation act, void** comm_buf) {
  return get(act, comm_buf, &MLSL::Activation::GetCommBuf);
}
int mlsl_activation_get_comm_buf_size(mlsl_activation act, size_t* comm_buf_size) {
  return get(act, comm_buf_size, &MLSL::Activation::GetCommBufSize);
}
int mlsl_activation_start_comm(mlsl_activation act, void* buf) {
  return run(act, &MLSL::Activation::StartComm, buf);
}
int mlsl_activation_wait_comm(mlsl_activation act, void** buf) {
  return get(act, buf, &MLSL::Activation::WaitComm);
}
int mlsl_parameter_set_get_global_kernel_count(mlsl_parameter_set params, size_t* global_kernel_count) {
  return get(params, global_kernel_count, &MLSL::ParameterSet::GetGlobalKernelCount);
}
int mlsl_parameter_set_get_global_kernel_offset(mlsl_parameter_set params, size_t* global_kernel_offset) {
  return get(params, global_kernel_offset, &MLSL::ParameterSet::GetGlobalKernelOffset);
}
int mlsl_parameter_set_get_local_kernel_count(mlsl_parameter_set params, size_t* local_kernel_count) {
  return get(params, local_kernel_count, &MLSL::ParameterSet::GetLocalKernelCount);
}
int mlsl_parameter_set_get_owned_kernel_count(mlsl_parameter_set params, size_t* owned_kernel_count) {
  return get(params, owned_kernel_count, &MLSL::ParameterSet::GetOwnedKernelCount);
}
int mlsl_parameter_set_get_owned_kernel_offset(mlsl_parameter_set params, size_t* owned_kernel_offset) {
  return get(params, owned_kernel_offset, &MLSL::ParameterSet::GetOwnedKernelOffset);
}
int mlsl_parameter_set_get_data_type(mlsl_parameter_set params, mlsl_data_type* data_type) {
  return get(params, data_type, &MLSL::ParameterSet::GetDataType);
}
int mlsl_parameter_set_get_kernel_size(mlsl_parameter_set params, size_t* kernel_size) {
  return get(params, kernel_size, &MLSL::ParameterSet::GetKernelSize);
}
int mlsl_parameter_set_is_distributed_update(mlsl_parameter_set params, int* is_distributed_update) {
  return get(params, is_distributed_update, &MLSL::ParameterSet::IsDistributedUpdate);
}
int mlsl_parameter_set_start_gradient_comm(mlsl_parameter_set params, void* buf) {
  return run(params, &MLSL::ParameterSet::StartGradientComm, buf);
}
int mlsl_parameter_set_start_increment_comm(mlsl_parameter_set params, void* buf) {
  return run(params, &MLSL::ParameterSet::StartIncrementComm, buf);
}
int mlsl_parameter_set_wait_gradient_comm(mlsl_parameter_set params, void** buf) {
  return get(params, buf, &MLSL::ParameterSet::WaitGradientComm);
}
int mlsl_parameter_set_test_gradient_comm(mlsl_parameter_set params, int* is_completed, void** buf) {
  bool is_complete = false;
  const int status = is_completed == nullptr
                         ? CMLSL_FAILURE
                         : get(params, buf, &MLSL::ParameterSet::TestGradientComm, &is_complete);
  if (status == CMLSL_SUCCESS) *is_completed = is_complete ? 1 : 0;
  return status;
}
int mlsl_parameter_set_wait_increment_comm(mlsl_parameter_set params, void** buf) {
  return get(params, buf, &MLSL::ParameterSet::WaitIncrementComm);
}
int mlsl_operation_reg_info_set_name(mlsl_operation_reg_info info, const char* name) {
  return run(info, &MLSL::OperationRegInfo::SetName, name);
}
int mlsl_operation_reg_info_add_input(mlsl_operation_reg_info info, size_t fm_count, size_t fm_size,
                                      mlsl_data_type data_type) {
  return run(info, &MLSL::OperationRegInfo::AddInput, fm_count, fm_size, data_type);
}
int mlsl_operation_reg_info_add_output(mlsl_operation_reg_info info, size_t fm_count, size_t fm_size,
                                       mlsl_data_type data_type) {
  return run(info, &MLSL::OperationRegInfo::AddOutput, fm_count, fm_size, data_type);
}
int mlsl_operation_reg_info_add_parameter_set(mlsl_operation_reg_info info, size_t kernel_count,
                                              size_t kernel_size, mlsl_data_type data_type,
                                              int distributed_update) {
  return run(info, &MLSL::OperationRegInfo::AddParameterSet, kernel_count, kernel_size, data_type,
             distributed_update, MLSL::CT_NONE);
}
int mlsl_operation_reg_info_add_parameter_set_with_compress(mlsl_operation_reg_info info, size_t kernel_count,
                                                            size_t kernel_size, mlsl_data_type data_type,
                                                            int distributed_update,
                                                            mlsl_compression_type compression_type) {
  return run(info, &MLSL::OperationRegInfo::AddParameterSet, kernel_count, kernel_size, data_type,
             distributed_update, compression_type);
}
int mlsl_operation_reg_info_validate(mlsl_operation_reg_info info, mlsl_distribution dist) {
  return run(info, &MLSL::OperationRegInfo::Validate, dist);
}
int mlsl_operation_set_distribution(mlsl_operation op, mlsl_distribution dist) {
  return run(op, &MLSL::Operation::SetDistribution, dist);
}
int mlsl_operation_get_distribution(mlsl_operation op, mlsl_distribution* dist) {
  return get(op, dist, &MLSL::Operation::GetDistribution);
}
int mlsl_operation_get_session(mlsl_operation op, mlsl_session* session) {
  return get(op, session, &MLSL::Operation::GetSession);
}
int mlsl_operation_get_op_type(mlsl_operation op, mlsl_op_type* op_type) {
  return get(op, op_type, &MLSL::Operation::GetOpType);
}
int mlsl_operation_set_prev(mlsl_operation op, mlsl_operation prev, size_t act_idx, size_t prev_op_act_idx) {
  return run(op, &MLSL::Operation::SetPrev, prev, act_idx, prev_op_act_idx);
}
int mlsl_operation_set_next(mlsl_operation op, mlsl_operation next, size_t act_idx, size_t next_op_act_idx) {
  return run(op, &MLSL::Operation::SetNext, next, act_idx, next_op_act_idx);
}
int mlsl_operation_get_name(mlsl_operation op, const char** name) {
  return get(op, name, &MLSL::Operation::GetName);
}
int mlsl_operation_get_global_minibatch_size(mlsl_operation op, size_t* global_minibatch_size) {
  return get(op, global_minibatch_size, &MLSL::Operation::GetGlobalMinibatchSize);
}
int mlsl_operation_get_local_minibatch_size(mlsl_operation op, size_t* local_minibatch_size) {
  return get(op, local_minibatch_size, &MLSL::Operation::GetLocalMinibatchSize);
}
int mlsl_operation_get_global_minibatch_offset(mlsl_operation op, size_t* global_minibatch_offset) {
  return get(op, global_minibatch_offset, &MLSL::Operation::GetGlobalMinibatchOffset);
}
int mlsl_operation_get_input_count(mlsl_operation op, size_t* input_count) {
  return get(op, input_count, &MLSL::Operation::GetInputCount);
}
int mlsl_operation_get_input(mlsl_operation op, size_t idx, mlsl_activation* input) {
  return get(op, input, &MLSL::Operation::GetInput, idx);
}
int mlsl_operation_get_output_count(mlsl_operation op, size_t* output_count) {
  return get(op, output_count, &MLSL::Operation::GetOutputCount);
}
int mlsl_operation_get_output(mlsl_operation op, size_t idx, mlsl_activation* output) {
  return get(op, output, &MLSL::Operation::GetOutput, idx);
}
int mlsl_operation_has_parameter_sets(mlsl_operation op, int* has_parameter_sets) {
  return get(op, has_parameter_sets, &MLSL::Operation::HasParameterSets);
}
int mlsl_operation_get_parameter_set_count(mlsl_operation op, size_t* parameter_set_count) {
  return get(op, parameter_set_count, &MLSL::Operation::GetParameterSetCount);
}
int mlsl_operation_get_parameter_set(mlsl_operation op, size_t idx, mlsl_parameter_set* params) {
  return get(op, params, &MLSL::Operation::GetParameterSet, idx);
}

}  // extern "C"

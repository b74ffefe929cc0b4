/* MLSL's C interface: a job, a distribution, a layer pair and their communication. A rank of a job. */
#include <mlsl.h>

#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(3);                                                                \
    }                                                                         \
  } while (0)
#define OK(call) CHECK((call) == CMLSL_SUCCESS)

static mlsl_environment env;
static size_t rank, size;

static void test_collectives(void) {
  mlsl_distribution dist;
  mlsl_comm_req request;
  double mine = (double)rank + 1, sum = 0;
  size_t count = 0;
  int is_complete = 0;
  OK(mlsl_environment_create_distribution(env, size, 1, &dist));
  OK(mlsl_distribution_get_process_count(dist, GT_DATA, &count));
  CHECK(count == size);
  OK(mlsl_distribution_all_reduce(dist, &mine, &sum, 1, DT_DOUBLE, RT_SUM, GT_GLOBAL, &request));
  OK(mlsl_environment_wait(env, request));
  CHECK(sum == (double)(size * (size + 1) / 2));
  OK(mlsl_distribution_bcast(dist, &mine, 1, DT_DOUBLE, size - 1, GT_DATA, &request));
  while (!is_complete) OK(mlsl_environment_test(env, request, &is_complete));
  CHECK(mine == (double)size);
  OK(mlsl_distribution_barrier(dist, GT_MODEL));
  OK(mlsl_environment_delete_distribution(env, dist));
}

static void add_operation(mlsl_session session, mlsl_distribution dist, const char* name,
                          mlsl_operation* op) {
  mlsl_operation_reg_info info;
  size_t index = 99;
  OK(mlsl_session_create_operation_reg_info(session, OT_CC, &info));
  OK(mlsl_operation_reg_info_set_name(info, name));
  OK(mlsl_operation_reg_info_add_input(info, 2 * size, 1, DT_FLOAT));
  OK(mlsl_operation_reg_info_add_output(info, 2 * size, 1, DT_FLOAT));
  OK(mlsl_operation_reg_info_add_parameter_set(info, 3 * size, 2, DT_FLOAT, 1));
  OK(mlsl_operation_reg_info_validate(info, dist));
  OK(mlsl_session_add_operation_with_distribution(session, info, dist, &index));
  OK(mlsl_session_get_operation(session, index, op));
  OK(mlsl_session_delete_operation_reg_info(session, info));
}

/* The first layer's outputs are sums over the model group; each rank of the second one gets two of them. */
static void test_activations(mlsl_operation first, mlsl_operation second) {
  mlsl_activation output, input;
  mlsl_comm_block_info block;
  size_t blocks = 0, b, i;
  void* buffer = NULL;
  float* received = NULL;
  OK(mlsl_operation_get_output(first, 0, &output));
  OK(mlsl_operation_get_input(second, 0, &input));
  OK(mlsl_activation_get_pack_block_count(output, &blocks));
  CHECK(blocks == (size > 1 ? size : 0));
  OK(mlsl_activation_get_comm_buf(output, &buffer));
  for (b = 0; b < blocks; ++b) {
    size_t offset = 0, maps = 0;
    OK(mlsl_activation_get_pack_block(output, b, &block));
    OK(mlsl_comm_block_info_get_buf_offset(block, &offset));
    OK(mlsl_comm_block_info_get_fm_offset(block, &maps));
    CHECK(maps == 2 * b);
    for (i = 0; i < 2; ++i) ((float*)buffer)[offset + i] = (float)(maps + i);
  }
  OK(mlsl_activation_start_comm(output, buffer));
  OK(mlsl_activation_wait_comm(input, (void**)&received));
  CHECK((received == NULL) == (size == 1));
  for (i = 0; received != NULL && i < 2; ++i) CHECK(received[i] == (float)(size * (2 * rank + i)));
}

/* `data`: ranks of the data group, whose gradients are added. */
static void test_parameters(mlsl_operation op, size_t data) {
  mlsl_parameter_set params;
  size_t local = 0, kernel_size = 0, i;
  int has = 0, is_complete = 0, distributed = 0;
  void* sums = NULL;
  float* gradients;
  OK(mlsl_operation_has_parameter_sets(op, &has));
  OK(mlsl_operation_get_parameter_set(op, 0, &params));
  OK(mlsl_parameter_set_is_distributed_update(params, &distributed));
  CHECK(has == 1 && distributed == 1);
  OK(mlsl_parameter_set_get_local_kernel_count(params, &local));
  OK(mlsl_parameter_set_get_kernel_size(params, &kernel_size));
  OK(mlsl_environment_alloc(env, local * kernel_size * sizeof(float), 64, (void**)&gradients));
  for (i = 0; i < local * kernel_size; ++i) gradients[i] = 1;
  OK(mlsl_parameter_set_start_gradient_comm(params, gradients));
  while (!is_complete) OK(mlsl_parameter_set_test_gradient_comm(params, &is_complete, &sums));
  CHECK((sums == NULL) == (data == 1));
  if (sums != NULL) CHECK(*(float*)sums == (float)data);
  OK(mlsl_parameter_set_start_increment_comm(params, gradients));
  OK(mlsl_parameter_set_wait_increment_comm(params, &sums));
  CHECK(sums == (data == 1 ? NULL : gradients));
  OK(mlsl_environment_free(env, gradients));
}

static void run_session(size_t data, size_t model, int has_activations) {
  mlsl_distribution dist;
  mlsl_session session, owner;
  mlsl_operation first, second;
  mlsl_op_type type;
  mlsl_statistics stats;
  const char* name = NULL;
  size_t minibatch = 0, index = 0;
  int is_enabled = 7;
  OK(mlsl_environment_create_distribution(env, data, model, &dist));
  OK(mlsl_environment_create_session(env, PT_TRAIN, &session));
  OK(mlsl_session_set_global_minibatch_size(session, data));
  add_operation(session, dist, "first", &first);
  add_operation(session, dist, "second", &second);
  OK(mlsl_operation_set_prev(second, first, 0, 0));
  OK(mlsl_session_commit(session));
  OK(mlsl_operation_get_name(first, &name));
  OK(mlsl_operation_get_op_type(first, &type));
  OK(mlsl_operation_get_session(first, &owner));
  CHECK(strcmp(name, "first") == 0 && type == OT_CC && owner == session);
  OK(mlsl_operation_get_local_minibatch_size(first, &minibatch));
  CHECK(minibatch == 1);
  OK(mlsl_session_get_operation_count(session, &index));
  CHECK(index == 2);
  OK(mlsl_session_get_stats(session, &stats));
  OK(mlsl_statistics_is_enabled(stats, &is_enabled));
  CHECK(is_enabled == 0);
  if (has_activations) test_activations(first, second);
  test_parameters(first, data);
  OK(mlsl_environment_delete_session(env, session));
  OK(mlsl_environment_delete_distribution(env, dist));
}

int main(int argc, char** argv) {
  int version = 0, is_initialized = 0;
  mlsl_quant_params quantization = 1;
  OK(mlsl_environment_get_env(&env));
  OK(mlsl_environment_get_version(&version));
  CHECK(version == CMLSL_VERSION(1, 0) && CMLSL_MAJOR(version) == CMLSL_MAJOR_VERSION);
  CHECK(CMLSL_MINOR(version) == CMLSL_MINOR_VERSION && CMLSL_VERSION_GE(version, CMLSL_VERSION(1, 0)));
  CHECK(CMLSL_VERSION_LT(version, CMLSL_VERSION(1, 1)));
  OK(mlsl_environment_init(env, &argc, &argv));
  OK(mlsl_environment_is_initialized(env, &is_initialized));
  CHECK(is_initialized == 1);
  OK(mlsl_environment_get_process_idx(env, &rank));
  OK(mlsl_environment_get_process_count(env, &size));
  CHECK(mlsl_environment_get_process_idx(0, &rank) == CMLSL_FAILURE);
  CHECK(mlsl_environment_get_process_idx(env, NULL) == CMLSL_FAILURE);
  CHECK(mlsl_environment_set_quantization_params(0, &quantization) == CMLSL_FAILURE);
  OK(mlsl_environment_get_quantization_params(env, &quantization));
  CHECK(quantization == 0);
  test_collectives();
  run_session(1, size, 1);
  run_session(size, 1, 0);
  OK(mlsl_environment_finalize(env));
  return 0;
}

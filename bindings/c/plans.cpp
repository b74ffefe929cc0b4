// Call plans of the C interface. Knows the public C++ interface only; tutti.h has the contracts.
#include "bindings/c/handles.hpp"
#include "runtime/base/types.hpp"

using namespace tutti::c;

namespace {

constexpr const char* kMake = "plan_make";
constexpr std::size_t kFirstCollectiveCallBytes = 88;
static_assert(sizeof(tutti_collective_call_t) == kFirstCollectiveCallBytes,
              "the first version has all members");

const tutti::CallPlan& plan_of(const char* call, tutti_plan_t plan) {
  check_given(call, "plan", plan);
  return plan->plan;
}

tutti::CollectiveCall collective_call_of(const tutti_collective_call_t& given, const tutti::CommGroup& group,
                                         const tutti_call_options_t* options) {
  const auto known = known_options(kMake, &given, kFirstCollectiveCallBytes);
  const CallArguments arguments(kMake, options);
  tutti::CollectiveCall call;
  call.collective = arguments.collective(known.collective);
  call.input = known.input;
  call.output = known.output;
  call.count = known.count;
  call.dtype = arguments.dtype(known.dtype);
  if (tutti::is_reducing(call.collective)) call.op = arguments.reduction(known.op, known.dtype);
  call.root = known.root;
  call.counts = list_of(group, known.counts);
  call.displacements = list_of(group, known.displacements);
  call.output_counts = list_of(group, known.output_counts);
  call.output_displacements = list_of(group, known.output_displacements);
  call.options = arguments.options();
  return call;
}

template <class Test>
tutti_status_t test(const char* call, tutti_plan_t plan, int* is_complete, const Test& ask) {
  return guarded([&] {
    check_place(call, "is_complete", is_complete);
    *is_complete = ask(plan_of(call, plan)) ? 1 : 0;
  });
}

}  // namespace

tutti_status_t tutti_plan_make(const tutti_collective_call_t* call, const uint64_t* partitions,
                               size_t partition_count, tutti_group_t group,
                               const tutti_call_options_t* options, tutti_plan_t* plan) {
  return guarded([&] {
    check_given(kMake, "call", call);
    check_place(kMake, "plan", plan);
    if (partition_count > 0) check_given(kMake, "partitions", partitions);
    const tutti::CommGroup& of = group_of(group);
    *plan =
        new TuttiPlan{of.make_plan(collective_call_of(*call, of, options), {partitions, partition_count})};
  });
}

tutti_status_t tutti_plan_start(tutti_plan_t plan) {
  return guarded([&] { plan_of("plan_start", plan).start(); });
}

tutti_status_t tutti_plan_ready(tutti_plan_t plan, size_t first, size_t count) {
  return guarded([&] { plan_of("plan_ready", plan).ready(first, count); });
}

tutti_status_t tutti_plan_test(tutti_plan_t plan, int* is_complete) {
  return test("plan_test", plan, is_complete, [](const tutti::CallPlan& p) { return p.is_complete(); });
}

tutti_status_t tutti_plan_test_partitions(tutti_plan_t plan, size_t first, size_t count, int* is_complete) {
  return test("plan_test_partitions", plan, is_complete,
              [&](const tutti::CallPlan& p) { return p.is_complete(first, count); });
}

tutti_status_t tutti_plan_wait(tutti_plan_t plan) {
  return guarded([&] { plan_of("plan_wait", plan).wait(); });
}

tutti_status_t tutti_plan_wait_partitions(tutti_plan_t plan, size_t first, size_t count) {
  return guarded([&] { plan_of("plan_wait_partitions", plan).wait(first, count); });
}

void tutti_plan_free(tutti_plan_t* plan) {
  if (plan != nullptr) delete std::exchange(*plan, nullptr);
}

// All collectives over the groups of every division of the job, and requests, colours and memory. A rank of a job;
// written against MLSL's header alone, as its users' programs are.
#include <mlsl.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/bindings/mlsl/check.hpp"

using namespace MLSL;

namespace {

Environment& env = Environment::GetEnv();

// Waits in turn by Wait and by Test.
void finish(CommReq* request) {
  static bool tests = false;
  tests = !tests;
  bool is_complete = !tests;
  while (!is_complete) env.Test(request, &is_complete);
  env.Wait(request);  // returns at once for one that Test has completed
}

template <class T>
T value(std::size_t rank, std::size_t i) {
  return static_cast<T>(rank * 3 + i % 7 + 1);
}

template <class T>
struct Group {
  Group(Distribution* distribution, GroupType kind)
      : dist(distribution), type(kind), rank(dist->GetProcessIdx(kind)), size(dist->GetProcessCount(kind)) {}

  std::vector<T> own(std::size_t n) const {
    std::vector<T> made(n);
    for (std::size_t i = 0; i < n; ++i) made[i] = value<T>(rank, i);
    return made;
  }
  T sum(std::size_t i) const {
    T total = 0;
    for (std::size_t r = 0; r < size; ++r) total = static_cast<T>(total + value<T>(r, i));
    return total;
  }

  void reductions(std::size_t n) const {
    std::vector<T> in = own(n), out(n);
    finish(dist->AllReduce(in.data(), out.data(), n, type_of<T>(), RT_SUM, type));
    for (std::size_t i = 0; i < n; ++i) CHECK(out[i] == sum(i));
    finish(dist->AllReduce(in.data(), in.data(), n, type_of<T>(), RT_MAX, type));
    for (std::size_t i = 0; i < n; ++i) CHECK(in[i] == value<T>(size - 1, i));
    in = own(n);
    finish(dist->Reduce(in.data(), out.data(), n, type_of<T>(), RT_MIN, size - 1, type));
    for (std::size_t i = 0; rank == size - 1 && i < n; ++i) CHECK(out[i] == value<T>(0, i));
    // Reduce-scatter, apart and in place.
    std::vector<T> all = own(n * size);
    finish(dist->ReduceScatter(all.data(), out.data(), n, type_of<T>(), RT_SUM, type));
    finish(dist->ReduceScatter(all.data(), all.data(), n, type_of<T>(), RT_SUM, type));
    for (std::size_t i = 0; i < n; ++i) CHECK(out[i] == sum(rank * n + i) && all[i] == out[i]);
  }

  void copies(std::size_t n) const {
    const std::size_t root = size / 2;
    std::vector<T> one = own(n), all(n * size);
    finish(dist->Gather(one.data(), n, all.data(), type_of<T>(), root, type));
    if (rank == root) check_all(all, n);
    finish(dist->AllGather(one.data(), n, all.data(), type_of<T>(), type));
    check_all(all, n);
    std::vector<T> in_place(n * size);
    std::memcpy(in_place.data() + rank * n, one.data(), n * sizeof(T));
    finish(dist->AllGather(in_place.data(), n, in_place.data(), type_of<T>(), type));
    CHECK(in_place == all);
    std::vector<T> back(n);
    finish(dist->Scatter(all.data(), back.data(), n, type_of<T>(), root, type));
    CHECK(back == one);
    finish(dist->Bcast(one.data(), n, type_of<T>(), root, type));
    for (std::size_t i = 0; i < n; ++i) CHECK(one[i] == value<T>(root, i));
  }

  void check_all(const std::vector<T>& all, std::size_t n) const {
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t i = 0; i < n; ++i) CHECK(all[r * n + i] == value<T>(r, i));
  }

  void exchanges(std::size_t n) const {
    std::vector<T> in = own(n * size), out(n * size);
    finish(dist->AlltoAll(in.data(), n, out.data(), type_of<T>(), type));
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t i = 0; i < n; ++i) CHECK(out[r * n + i] == value<T>(r, rank * n + i));
    // Rank r sends r + 1 elements to each rank, and contributes as many.
    std::vector<std::size_t> send(size, rank + 1), receive(size), send_at(size), receive_at(size);
    std::size_t total = 0;
    for (std::size_t r = 0; r < size; ++r) {
      send_at[r] = r * (rank + 1);
      receive[r] = r + 1;
      receive_at[r] = total;
      total += r + 1;
    }
    in = own(size * (rank + 1));
    out.assign(total, 0);
    finish(dist->AlltoAllv(in.data(), send.data(), send_at.data(), out.data(), receive.data(),
                           receive_at.data(), type_of<T>(), type));
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t i = 0; i <= r; ++i) CHECK(out[receive_at[r] + i] == value<T>(r, rank * (r + 1) + i));
    finish(dist->AllGatherv(in.data(), rank + 1, out.data(), receive.data(), type_of<T>(), type));
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t i = 0; i <= r; ++i) CHECK(out[receive_at[r] + i] == value<T>(r, i));
  }

  Distribution* dist;
  GroupType type;
  std::size_t rank, size;
};

template <class T>
void run(Distribution* dist) {
  for (const GroupType type : {GT_DATA, GT_MODEL, GT_GLOBAL}) {
    const Group<T> group(dist, type);
    for (const std::size_t n : {std::size_t{1}, std::size_t{1000}}) {
      group.reductions(n);
      group.copies(n);
      group.exchanges(n);
    }
    dist->Barrier(type);
  }
}

void divide(std::size_t data, std::size_t model) {
  Distribution* const dist = env.CreateDistribution(data, model);
  const std::size_t rank = env.GetProcessIdx() % (data * model);
  // The last replica may have fewer ranks: its last model group is shorter, and its last data groups are.
  const std::size_t ranks = std::min(data * model, env.GetProcessCount() - env.GetProcessIdx() + rank);
  CHECK(dist->GetProcessCount(GT_DATA) == (ranks - rank % model + model - 1) / model);
  CHECK(dist->GetProcessCount(GT_MODEL) == std::min(model, ranks - rank / model * model));
  CHECK(dist->GetProcessIdx(GT_DATA) == rank / model && dist->GetProcessIdx(GT_MODEL) == rank % model);
  CHECK(dist->GetProcessCount(GT_GLOBAL) == env.GetProcessCount());
  run<float>(dist);
  run<double>(dist);
  run<unsigned char>(dist);
  env.DeleteDistribution(dist);
}

void test_colors() {
  const std::size_t rank = env.GetProcessIdx(), size = env.GetProcessCount();
  Distribution* const dist = env.CreateDistributionWithColors(static_cast<int>(rank % 2), rank == 0 ? -1 : 5);
  CHECK(dist->GetProcessCount(GT_DATA) == (size + 1 - rank % 2) / 2);
  CHECK(dist->GetProcessIdx(GT_DATA) == rank / 2);
  CHECK(dist->GetProcessCount(GT_MODEL) == (rank == 0 ? 1 : size - 1));
  run<float>(dist);
  env.DeleteDistribution(dist);
  // The global group itself: the upper half becomes a job of its own.
  env.Configure(rank >= size / 2 ? "color=7" : "color=2");
  CHECK(env.GetProcessCount() == (rank >= size / 2 ? size - size / 2 : size / 2));
  CHECK(env.GetProcessIdx() == (rank >= size / 2 ? rank - size / 2 : rank));
  divide(1, env.GetProcessCount());
}

void test_memory() {
  void* const memory = env.Alloc(1000, 4096);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  std::memset(memory, 1, 1000);
  env.Free(memory);
  void* const small = env.Alloc(0, 64);
  CHECK(small != nullptr);
  env.Free(small);
  env.Free(nullptr);
}

// A request that was released is not taken for a later one, which may wait for other calls of this rank.
void test_released_request() {
  Distribution* const dist = env.CreateDistribution(env.GetProcessCount(), 1);
  const std::size_t last = env.GetProcessCount() - 1;
  float value = 1, other = 2;
  CommReq* const first = dist->AllReduce(&value, &value, 1, DT_FLOAT, RT_SUM, GT_GLOBAL);
  bool is_complete = false;
  while (!is_complete) env.Test(first, &is_complete);
  if (env.GetProcessIdx() == last) dist->Barrier(GT_GLOBAL);
  CommReq* const second = dist->Bcast(&other, 1, DT_FLOAT, last, GT_DATA);
  env.Wait(first);
  if (env.GetProcessIdx() != last) dist->Barrier(GT_GLOBAL);
  env.Wait(second);
  env.DeleteDistribution(dist);
}

// The last rank comes late.
float* start_late_sum(Distribution* dist) {
  static float sums[1000];
  std::fill(std::begin(sums), std::end(sums), 1.0F);
  if (env.GetProcessIdx() + 1 == env.GetProcessCount())
    // Any time will do: the others must wait for it.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  dist->AllReduce(sums, sums, 1000, DT_FLOAT, RT_SUM, GT_GLOBAL);
  return &sums[999];
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(Environment::GetVersion() == MLSL_VERSION(1, 0) &&
        MLSL_VERSION_GE(MLSL_VERSION(1, 0), MLSL_VERSION(1, 0)) &&
        MLSL_VERSION_LT(MLSL_VERSION(1, 9), MLSL_VERSION(2, 0)));
  CHECK(!env.IsInitialized());
  env.Init(&argc, &argv);
  CHECK(env.IsInitialized());
  const std::size_t size = env.GetProcessCount();
  for (std::size_t data = 1; data <= size; ++data)
    for (std::size_t model = 1; data * model <= size; ++model) divide(data, model);
  void* const outlives = env.Alloc(64, 64);
  test_memory();
  test_released_request();
  if (size > 1) test_colors();
  const auto ranks = static_cast<float>(env.GetProcessCount());
  // Nobody deletes it, as its request goes on until Finalize.
  static Distribution* const last_distribution = env.CreateDistribution(env.GetProcessCount(), 1);
  const float* const last_sum = start_late_sum(last_distribution);
  if (::fork() == 0) {
    env.Finalize();  // of the parent's job: nothing happens
    ::_exit(0);
  }
  env.Finalize();
  CHECK(!env.IsInitialized() && *last_sum == ranks);
  env.Free(outlives);
  return 0;
}

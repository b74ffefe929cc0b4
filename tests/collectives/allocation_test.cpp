// From its second call on a signature allocates nothing: this executable counts operator new, by thread.
// Knows no transport's inside, but for what an arena promises.
#include "tests/support/catch.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "tutti_config.hpp"

#include "tests/support/world.hpp"
#include "transports/memory/arena.hpp"
#include "transports/registry.hpp"
#include "tutti/tutti.hpp"

namespace {

thread_local std::uint64_t allocations = 0;

void* count_and_allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// The array and nothrow forms call these. Not inlined: gcc would see aligned_alloc next to operator delete,
// and operator new next to free, and call each a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return count_and_allocate(bytes == 0 ? 1 : bytes, 16);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return count_and_allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tutti::test {
namespace {

constexpr std::size_t kCapacity = 1U << 16U;
constexpr int kCalls = 20;
constexpr std::size_t kBurst = 30;  // calls under way at once: many times a group's slots

// Memory for any of the calls below, and the counts they point to.
struct Buffers {
  std::vector<std::int32_t> input = std::vector<std::int32_t>(kCapacity, 1);
  std::vector<std::int32_t> output = std::vector<std::int32_t>(kCapacity, 1);
  std::vector<std::uint64_t> counts, displacements;
};

struct Signature {
  Collective collective;
  const char* algorithm;
  std::uint64_t count;
  bool has_counts = false;
  bool in_place = false;
  Op op = Op::sum;
};

constexpr Signature kSignatures[] = {
    {Collective::allreduce, "", 4},
    {Collective::allreduce, "ring", 4},
    {Collective::allreduce, "ring", 50000},
    {Collective::allreduce, "ring", 50000, false, true},
    {Collective::allreduce, "ring(segments=4)", 50000},
    {Collective::allreduce, "ring(segments=100)", 50000},
    {Collective::allreduce, "rabenseifner", 20000, false, true},
    {Collective::allreduce, "recursive_doubling", 100},
    {Collective::allreduce, "one_shot", 10},
    {Collective::allreduce, "two_shot", 30000},
    {Collective::allreduce, "two_shot", 30000, false, false, Op::avg},
    {Collective::allreduce, "8", 50000},
    {Collective::broadcast, "", 40000},
    {Collective::reduce, "", 40000},
    {Collective::barrier, "", 0},
    {Collective::allgather, "ring", 1000},
    {Collective::allgather, "ring", 1000, true},
    {Collective::allgather, "bruck", 1000, true, true},
    {Collective::reduce_scatter, "ring", 1000, true},
    {Collective::reduce_scatter, "direct", 1000, true, true},
    {Collective::gather, "", 1000, true},
    {Collective::scatter, "", 1000, true},
    {Collective::alltoall, "", 1000},
    {Collective::alltoall, "", 1000, true},
    {Collective::alltoall, "pairwise", 1000, false, true},
    {Collective::scan, "", 1000},
};

Call make_call(const Signature& s, const Member& member, Buffers& buffers) {
  Call call;
  call.collective = s.collective;
  call.dtype = Dtype::i32;
  call.op = s.op;
  call.in_place = s.in_place;
  call.count = s.count;
  call.output = buffers.output.data();
  call.input = s.in_place ? buffers.output.data() : buffers.input.data();
  if (s.has_counts) {
    call.counts = buffers.counts;
    call.displacements = buffers.displacements;
    const std::uint64_t own = buffers.displacements[member.rank];
    if (s.in_place && s.collective == Collective::allgather) call.input = buffers.output.data() + own;
    if (s.in_place && s.collective == Collective::reduce_scatter) call.output = buffers.output.data() + own;
  }
  return call;
}

// Uneven counts; of alltoallv every message has the same length in this test's eyes of both partners.
void set_counts(const Signature& s, const Member& member, Buffers& buffers) {
  buffers.counts.clear();
  buffers.displacements.clear();
  std::uint64_t next = 0;
  for (std::uint32_t q = 0; q < member.size; ++q) {
    const bool is_alltoall = s.collective == Collective::alltoall;
    buffers.counts.push_back(s.count + 10 * q + (is_alltoall ? 10 * member.rank : 0));
    buffers.displacements.push_back(next);
    next += buffers.counts.back();
  }
}

Status run_to_end(const Member& member, const Call& call, const char* algorithm) {
  auto work = member.backend->start(call, {algorithm});
  return work ? (*work)->wait(Clock::now() + std::chrono::seconds(60)) : work.status();
}

Call bind_call(const Member& member, const Signature& s, Buffers& buffers) {
  set_counts(s, member, buffers);
  Call call = make_call(s, member, buffers);
  if (s.collective == Collective::alltoall && s.has_counts) {
    call.output_counts = buffers.counts;
    call.output_displacements = buffers.displacements;
  }
  return call;
}

// Starts as many calls as there are buffers, then waits for all of them.
Status run_burst(const Member& member, const Signature& s, std::span<Buffers> buffers,
                 std::span<WorkRef> works) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    auto work = member.backend->start(bind_call(member, s, buffers[i]), {s.algorithm});
    if (!work) return work.status();
    works[i] = *std::move(work);
  }
  for (WorkRef& work : works) {
    TUTTI_RETURN_IF_ERROR(work->wait(Clock::now() + std::chrono::seconds(60)));
    work = WorkRef();
  }
  return {};
}

// The first call is alone; those that follow are all under way at once.
std::string exercise_burst(const Member& member, const Signature& s, std::span<Buffers> buffers,
                           std::span<WorkRef> works) {
  if (Status status = run_burst(member, s, buffers.first(1), works.first(1)); !status)
    return status.to_string();
  const std::uint64_t before = allocations;
  std::uint64_t made[2] = {};
  for (std::uint64_t& after : made) {
    if (Status status = run_burst(member, s, buffers, works); !status) return status.to_string();
    after = allocations - before;
  }
  if (made[1] == 0) return {};
  return fmt::format("{} {} of {}{}{}: {} allocations in the first burst of {} calls, {} in the second",
                     to_string(s.collective), s.algorithm, s.count, s.has_counts ? ", uneven" : "",
                     s.in_place ? ", in place" : "", made[0], buffers.size(), made[1] - made[0]);
}

std::string exercise_signature(const Member& member, const Signature& s, Buffers& buffers) {
  const Call call = bind_call(member, s, buffers);
  if (Status status = run_to_end(member, call, s.algorithm); !status) return status.to_string();
  const std::uint64_t before = allocations;
  bool is_right = true;
  std::uint64_t made = 0;
  int first = 0;  // that allocated
  for (int i = 2; i < 2 + kCalls; ++i) {
    is_right = run_to_end(member, call, s.algorithm).is_ok() && is_right;
    made = allocations - before;
    if (made != 0 && first == 0) first = i;
  }
  if (!is_right) return "a call failed";
  if (made == 0) return {};
  return fmt::format("{} {} of {}{}{}: {} allocations in {} calls, the first in call {}",
                     to_string(s.collective), s.algorithm, s.count, s.has_counts ? ", uneven" : "",
                     s.in_place ? ", in place" : "", made, kCalls, first);
}

}  // namespace

TEST_CASE("the counter counts", "[scheduler][allocation]") {
  const std::uint64_t before = allocations;
  // Called by name: a compiler may leave out new-expressions whose result is not used.
  ::operator delete(::operator new(4));
  ::operator delete[](::operator new[](3));
  const std::uint64_t made = allocations - before;
  CHECK(made == 2);
}

// `inproc`, `shm` in one process, and `apart`: shm that meets its peers as if they were other processes.
World make_world(const std::string& kind, std::uint32_t size) {
  if (kind == "inproc") return World(WorldTransport::inproc, size);
  World::Decorate instead;
  if (kind == "apart") {
    instead = [](std::unique_ptr<Transport>, std::uint32_t) { return *make_shm_transport(); };
  }
  return World(WorldTransport::shm, size, World::oversubscribed(), instead);
}

// Of our own memory: libraries' requests and buffers come from their own pools. Contexts are not prepared for
// each other here, so every slot of the group has its first turn in the first round; and how many messages
// come before they are asked for is a matter of timing, so that a queue may grow once more in a later one.
// Code that allocates on every call does so in all rounds.
void exercise_message_transport(const std::string& name) {
  constexpr int kRounds = 4;
  World world(WorldTransport::inproc, 2, World::oversubscribed(),
              [&](std::unique_ptr<Transport>, std::uint32_t) { return *make_transport(name, {}); });
  const std::string report = world.run([](Member& member) {
    Buffers buffers;
    std::vector<std::string> quietest;  // by signature
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < std::size(kSignatures); ++i) {
        std::string found = exercise_signature(member, kSignatures[i], buffers);
        if (round == 0)
          quietest.push_back(std::move(found));
        else if (round == 1 || found.empty())
          quietest[i] = std::move(found);
      }
    }
    std::string all;
    for (const std::string& one : quietest) {
      if (!one.empty()) all += one + "\n";
    }
    return all;
  });
  CHECK(report == "");
}

TEST_CASE("known signatures allocate nothing over TCP either", "[scheduler][allocation]") {
  exercise_message_transport("tcp");
}
#if TUTTI_HAVE_TRANSPORT_UCX
TEST_CASE("known signatures allocate nothing over UCX either", "[scheduler][allocation]") {
  exercise_message_transport("ucx");
}
#endif
#if TUTTI_HAVE_TRANSPORT_OFI
TEST_CASE("known signatures allocate nothing over libfabric either", "[scheduler][allocation]") {
  exercise_message_transport("ofi");
}
#endif

TEST_CASE("the second and later calls of a signature allocate nothing", "[scheduler][allocation]") {
  const auto p = GENERATE(1U, 2U, 4U);
  const auto kind = GENERATE(as<std::string>(), "inproc", "shm", "apart");
  CAPTURE(p, kind);
  World world = make_world(kind, p);
  const std::string report = world.run([](Member& member) {
    Buffers buffers;
    std::string all;
    for (const Signature& s : kSignatures) {
      const std::string one = exercise_signature(member, s, buffers);
      if (!one.empty()) all += one + "\n";
    }
    return all;
  });
  CHECK(report == "");
}

TEST_CASE("calls of a known signature allocate nothing, however many are under way",
          "[scheduler][allocation]") {
  const auto p = GENERATE(1U, 2U, 4U);
  const auto kind = GENERATE(as<std::string>(), "inproc", "shm", "apart");
  CAPTURE(p, kind);
  World world = make_world(kind, p);
  const std::string report = world.run([](Member& member) {
    std::vector<Buffers> buffers(kBurst);
    for (Buffers& one : buffers) {
      one.counts.reserve(member.size);
      one.displacements.reserve(member.size);
    }
    std::vector<WorkRef> works(kBurst);
    std::string all;
    for (const Signature& s : kSignatures) {
      const std::string one = exercise_burst(member, s, buffers, works);
      if (!one.empty()) all += one + "\n";
    }
    return all;
  });
  CHECK(report == "");
}

TEST_CASE("counts and pointers are no part of a signature", "[scheduler][allocation]") {
  const auto kind = GENERATE(as<std::string>(), "inproc", "shm", "apart");
  CAPTURE(kind);
  World world = make_world(kind, 3);
  const std::string report = world.run([](Member& member) -> std::string {
    Buffers buffers;
    Signature s{Collective::allreduce, "ring", 0};
    std::uint64_t before = 0;
    bool is_right = true;
    // Lengths from one element on; then others of the same magnitudes, in every slot.
    for (std::uint32_t pass = 0; pass <= GroupContext::kSlots; ++pass) {
      if (pass == 1) before = allocations;
      for (std::uint64_t length = 60000; length > 0; length /= 3) {
        s.count = length - (pass > 0 && length > 2 ? 1 : 0);
        Call call = make_call(s, member, buffers);
        call.output = buffers.output.data() + pass;
        is_right = run_to_end(member, call, "ring").is_ok() && is_right;
      }
    }
    const std::uint64_t made = allocations - before;
    return is_right && made == 0 ? std::string() : fmt::format("{} allocations", made);
  });
  CHECK(report == "");
}

using Flags = std::array<std::atomic<bool>, 2>;

// The first submitted operation that cannot end at once starts a rank's progress threads: each rank submits one
// of which the other knows nothing yet.
void start_progress_threads(CommGroup& group, Flags& has_submitted) {
  for (int first = 0; first < 2; ++first) {
    auto& flag = has_submitted[static_cast<std::size_t>(first)];
    if (group.rank() != first) {
      while (!flag) std::this_thread::yield();
    }
    std::int32_t value = 1;
    const Work work = group.iallreduce(&value, &value, 1, Dtype::i32, Op::sum);
    if (group.rank() == first) flag = true;
    work.wait();
  }
}

// Memory that a first call did not get would be allocated by one of the next calls, blocking or not.
std::string exercise_interface(CommGroup& group, Flags& has_submitted) {
  start_progress_threads(group, has_submitted);
  std::vector<std::int32_t> input(8192, 1), output(32768);
  const auto call_all = [&](int offset) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{2000}}) {
      std::int32_t* const in = input.data() + offset;
      std::int32_t* const out = output.data() + offset;
      group.allreduce(in, out, count, Dtype::i32, Op::sum);
      group.broadcast(out, count, Dtype::i32, 1);
      group.reduce(in, out, count, Dtype::i32, Op::max, 0);
      group.allgather(in, out, count, Dtype::i32);
      group.reduce_scatter(in, out, count, Dtype::i32, Op::sum);
      group.barrier();
      Work first = group.iallreduce(in, out, count, Dtype::i32, Op::sum);
      Work second = group.iallreduce(in, out + 16384, count, Dtype::i32, Op::sum);
      first.wait();
      second.wait();
    }
  };
  call_all(0);
  const std::uint64_t before = allocations;
  for (int i = 0; i < kCalls; ++i) call_all(i % 5);
  const std::uint64_t made = allocations - before;
  return made == 0 ? std::string() : fmt::format("{} allocations", made);
}

TEST_CASE("calls through the public interface allocate nothing from the second on", "[allocation]") {
  constexpr int kRanks = 2;
  const std::string id = make_unique_id();
  std::vector<std::string> reports(kRanks);
  Flags has_submitted{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        InitOptions options;
        options.unique_id = id;
        options.rank = rank;
        options.size = kRanks;
        CommGroup group = init(options);
        reports[static_cast<std::size_t>(rank)] = exercise_interface(group, has_submitted);
      } catch (const Error& error) {
        reports[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& report : reports) CHECK(report == "");
}

TEST_CASE("messages between two ranks allocate nothing after the first", "[scheduler][allocation]") {
  const auto kind = GENERATE(as<std::string>(), "inproc", "shm", "apart");
  CAPTURE(kind);
  World world = make_world(kind, 2);
  const std::string report = world.run([](Member& member) -> std::string {
    std::vector<std::int32_t> data(30000, 5);
    Call call;
    call.collective = Collective::send_recv;
    call.dtype = Dtype::i32;
    call.root = 1 - member.rank;
    call.is_send = member.rank == 0;
    call.input = data.data();
    call.output = data.data();
    std::uint64_t before = 0;
    for (int i = 0; i < 1 + kCalls; ++i) {
      call.count = i % 2 == 0 ? 30000 : 10;
      if (Status status = run_to_end(member, call, ""); !status) return status.to_string();
      if (i == 0) before = allocations;
    }
    const std::uint64_t made = allocations - before;
    return made == 0 ? std::string() : fmt::format("{} allocations", made);
  });
  CHECK(report == "");
}

TEST_CASE("a rank that is not talked to yet may link at any time", "[scheduler][allocation]") {
  World world = make_world("apart", 3);
  std::atomic<bool> has_begun{false}, has_linked{false};
  const std::string report = world.run([&](Member& member) -> std::string {
    std::int32_t data = 5;
    const auto run_message = [&](std::uint32_t peer, bool is_send) {
      Call call;
      call.collective = Collective::send_recv;
      call.dtype = Dtype::i32;
      call.root = peer;
      call.is_send = is_send;
      call.input = &data;
      call.output = &data;
      call.count = 1;
      return run_to_end(member, call, "");
    };
    const auto wait_for = [](const std::atomic<bool>& flag) {
      while (!flag) std::this_thread::yield();
    };
    if (member.rank == 2) {
      wait_for(has_begun);
      data = 7;
      const Status status = run_message(0, true);
      has_linked = true;
      return status.is_ok() ? "" : status.to_string();
    }
    // Rank 0 waits for the second message until it is bored enough to look for new peers.
    if (member.rank == 1) {
      Status status = run_message(0, true);
      wait_for(has_linked);
      // Nothing tells that rank 0 waits by now; too early only tests less.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (status) status = run_message(0, true);
      return status.is_ok() ? "" : status.to_string();
    }
    Status status = run_message(1, false);
    has_begun = true;
    const std::uint64_t before = allocations;
    if (status) status = run_message(1, false);
    const std::uint64_t made = allocations - before;
    if (status) status = run_message(2, false);
    if (!status) return status.to_string();
    if (data != 7) return "the message of the new peer is lost";
    return made == 0 ? std::string() : fmt::format("{} allocations", made);
  });
  CHECK(report == "");
}

TEST_CASE("an arena takes no memory for promised blocks, nor for what is given back",
          "[scheduler][allocation]") {
  constexpr std::uint64_t kBlocks = 1000;
  memory::Arena arena({0, kBlocks * 64}, [](std::uint64_t, std::uint64_t) { return Status(); });
  arena.promise(kBlocks);
  const std::uint64_t before = allocations;
  bool is_right = true;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kBlocks; ++i) is_right = arena.allocate(64, round == 0).is_ok() && is_right;
    // Every other one first, so that as many pieces are free as can be.
    for (std::uint64_t i = 0; i < kBlocks; i += 2) arena.release(i * 64);
    for (std::uint64_t i = 1; i < kBlocks; i += 2) arena.release(i * 64);
  }
  const std::uint64_t made = allocations - before;
  CHECK(is_right);
  CHECK(made == 0);
}

}  // namespace tutti::test

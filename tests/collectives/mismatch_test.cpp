// Ranks that make different calls, by a seeded share of all pairs: no result of such a call is a success on a
// rank that waited for another rank's data, and at the latest the next call of the group names it everywhere.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kMostCount = 40000;

struct Asked {
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::i32;
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 1;

  bool is_rooted() const {
    return collective == Collective::broadcast || collective == Collective::reduce ||
           collective == Collective::gather || collective == Collective::scatter;
  }
  bool reduces() const {
    return collective == Collective::allreduce || collective == Collective::reduce ||
           collective == Collective::reduce_scatter || collective == Collective::scan ||
           collective == Collective::exscan;
  }
  // Compares everything that the call depends on.
  bool equals(const Asked& other) const {
    if (collective != other.collective) return false;
    if (collective == Collective::barrier) return true;
    return dtype == other.dtype && count == other.count && (!reduces() || op == other.op) &&
           (!is_rooted() || root == other.root);
  }
  std::string text() const {
    return "collective " + std::to_string(static_cast<int>(collective)) + ", dtype " +
           std::to_string(static_cast<int>(dtype)) + ", op " + std::to_string(static_cast<int>(op)) +
           ", root " + std::to_string(root) + ", count " + std::to_string(count);
  }
};

constexpr std::array kCollectives{Collective::allreduce, Collective::broadcast,      Collective::reduce,
                                  Collective::allgather, Collective::reduce_scatter, Collective::alltoall,
                                  Collective::gather,    Collective::scatter,        Collective::barrier,
                                  Collective::scan,      Collective::exscan};

struct Buffers {
  std::vector<std::int64_t> input, output;
  explicit Buffers(int size) : input(kMostCount * static_cast<std::size_t>(size), 1), output(input.size()) {}
};

void call(CommGroup& g, const Asked& asked, Buffers& at) {
  const void* const in = at.input.data();
  void* const out = at.output.data();
  switch (asked.collective) {
    case Collective::allreduce:
      return g.allreduce(in, out, asked.count, asked.dtype, asked.op);
    case Collective::broadcast:
      return g.broadcast(out, asked.count, asked.dtype, asked.root);
    case Collective::reduce:
      return g.reduce(in, out, asked.count, asked.dtype, asked.op, asked.root);
    case Collective::allgather:
      return g.allgather(in, out, asked.count, asked.dtype);
    case Collective::reduce_scatter:
      return g.reduce_scatter(in, out, asked.count, asked.dtype, asked.op);
    case Collective::alltoall:
      return g.alltoall(in, out, asked.count, asked.dtype);
    case Collective::gather:
      return g.gather(in, out, asked.count, asked.dtype, asked.root);
    case Collective::scatter:
      return g.scatter(in, out, asked.count, asked.dtype, asked.root);
    case Collective::scan:
      return g.scan(in, out, asked.count, asked.dtype, asked.op);
    case Collective::exscan:
      return g.exscan(in, out, asked.count, asked.dtype, asked.op);
    default:
      return g.barrier();
  }
}

// May the call of `rank` end well, where rank `odd` makes another? Only if all ranks whose data it waits for
// make the same.
bool may_succeed(const std::vector<Asked>& calls, int rank) {
  const auto at = [&](int r) -> const Asked& { return calls[static_cast<std::size_t>(r)]; };
  const Asked& own = at(rank);
  const auto agrees = [&](int r) { return at(r).equals(own); };
  const int size = static_cast<int>(calls.size());
  if (own.collective == Collective::broadcast || own.collective == Collective::scatter)
    return own.root == rank || agrees(own.root);
  if ((own.collective == Collective::reduce || own.collective == Collective::gather) && own.root != rank)
    return true;
  const bool is_scan = own.collective == Collective::scan || own.collective == Collective::exscan;
  for (int r = 0; r < (is_scan ? rank : size); ++r) {
    if (!agrees(r)) return false;
  }
  return true;
}

struct Case {
  std::vector<Asked> calls;  // by rank
  int warm_calls = 0;
  std::string text;
};

Case make_case(std::mt19937& random, int size) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr std::array kDtypes{Dtype::i32, Dtype::f32, Dtype::i64, Dtype::u8};
  constexpr std::array kOps{Op::sum, Op::max, Op::min};
  constexpr std::array<std::size_t, 6> kCounts{1, 2, 12, 130, 3000, kMostCount};
  const auto any = [&] {
    Asked asked;
    asked.collective = kCollectives[below(kCollectives.size())];
    asked.dtype = kDtypes[below(kDtypes.size())];
    asked.op = kOps[below(kOps.size())];
    asked.root = static_cast<int>(below(static_cast<std::size_t>(size)));
    asked.count = kCounts[below(kCounts.size())];
    return asked;
  };
  Case made;
  Asked usual = any();
  // Roots are where a rank may hear from nobody: half of the cases.
  if (below(2) == 0) {
    constexpr std::array kRooted{Collective::broadcast, Collective::reduce, Collective::gather,
                                 Collective::scatter};
    usual.collective = kRooted[below(kRooted.size())];
  }
  Asked other = usual;
  while (other.equals(usual)) {
    const Asked fresh = any();
    switch (below(5)) {
      case 0:
        other.collective = fresh.collective;
        break;
      case 1:
        other.dtype = fresh.dtype;
        break;
      case 2:
        other.op = fresh.op;
        break;
      case 3:
        other.count = below(2) == 0 ? usual.count + 1 : fresh.count;
        break;
      default:
        other.root = fresh.root;
    }
    other.count = std::min(other.count, kMostCount);
  }
  const int odd = static_cast<int>(below(static_cast<std::size_t>(size)));
  const bool is_own_root = usual.is_rooted() && below(4) == 0;
  for (int rank = 0; rank < size; ++rank) {
    made.calls.push_back(rank == odd ? other : usual);
    if (is_own_root) made.calls.back() = usual, made.calls.back().root = rank;
  }
  made.warm_calls = below(2) == 0 ? 0 : 5 + static_cast<int>(below(4));
  made.text = is_own_root ? usual.text() + ", each rank its own root"
                          : usual.text() + ", but rank " + std::to_string(odd) + ": " + other.text();
  made.text += ", after " + std::to_string(made.warm_calls) + " calls";
  return made;
}

// Runs one case on this rank and returns its fault, if any.
Verdict run_case(CommGroup& world, const Case& test, Buffers& buffers) {
  const int rank = world.rank();
  std::vector<int> everybody(static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) everybody[static_cast<std::size_t>(r)] = r;
  CommGroup group = world.create(everybody);
  Asked usual;
  bool has_succeeded = false;
  try {
    // A rank that lags behind may hear of the failure in one of these.
    for (int i = 0; i < test.warm_calls; ++i) {
      usual.collective = i % 3 == 0 ? Collective::broadcast : Collective::allreduce;
      usual.count = i % 2 == 0 ? 4 : 3000;
      call(group, usual, buffers);
    }
    call(group, test.calls[static_cast<std::size_t>(rank)], buffers);
    has_succeeded = true;
    usual.count = 4;
    usual.collective = Collective::allreduce;
    call(group, usual, buffers);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (has_succeeded && !may_succeed(test.calls, rank)) return "a wrong success: " + test.text;
    if (error.code() != StatusCode::mismatch || text.find("as operation ") == std::string::npos ||
        text.find("; rank") == std::string::npos)
      return test.text + ": " + text;
    return {};
  }
  return "silent: " + test.text;
}

}  // namespace

TEST_CASE("no pair of different calls stays unnoticed", "[mismatch]") {
  const auto transport = GENERATE(as<std::string>(), "inproc", "shm", "tcp");
  const int size = GENERATE(2, 3, 4);
  const Variables variables{{"TUTTI_TRANSPORTS", transport}};
  constexpr std::uint32_t kCases = 40;
  INFO(transport << ", " << size << " ranks");
  CHECK(with_ranks(size, [&](CommGroup& world) -> Verdict {
          Buffers buffers(world.size());
          std::mt19937 random(static_cast<std::uint32_t>(815 * size) + transport.size());
          Verdict verdict;
          for (std::uint32_t i = 0; i < kCases; ++i) {
            const Case test = make_case(random, world.size());
            if (!test::is_selected(i)) continue;
            if (const Verdict one = run_case(world, test, buffers); !one.empty()) verdict += one + "\n";
          }
          return verdict;
        }) == "");
}

TEST_CASE("collectives in another order are named", "[mismatch]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const bool is_warm = GENERATE(false, true);
  CHECK(with_ranks(3, [&](CommGroup& world) -> Verdict {
          std::vector<int> one(4, world.rank()), two(4, 10 + world.rank());
          if (is_warm) world.broadcast(std::span(one), 1);
          // All are submitted before anything is waited for.
          std::vector<Work> works;
          std::string text = error_of([&] {
            if (world.rank() == 1) works.push_back(world.ibroadcast(std::span(two), 2));
            works.push_back(world.ibroadcast(std::span(one), 0));
            if (world.rank() != 1) works.push_back(world.ibroadcast(std::span(two), 2));
            wait_all(works);
          });
          // The root of both calls hears of it with its next call.
          if (text.empty()) text = error_of([&] { world.barrier(); });
          const bool is_named = text.find("rank 1 called broadcast of 4 i32, root 2") != std::string::npos &&
                                text.find("called broadcast of 4 i32, root 0") != std::string::npos;
          return is_named ? "" : "unnamed: " + text;
        }) == "");
}

TEST_CASE("messages in another dtype on some ranks only are named", "[mismatch]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "shm", "tcp")},
                            {"TUTTI_WIRE_DTYPE", GENERATE(as<std::string>(), "none:all", "bf16")}};
  CHECK(with_ranks(3, [&](CommGroup& world) -> Verdict {
          std::vector<float> sum(1000, 1.001F);
          const bool asks = world.rank() == 1;
          std::string text = error_of([&] {
            CallOptions options;
            options.wire_dtype = asks ? Dtype::f16 : Dtype::f32;
            world.allreduce(std::span(sum), Op::sum, options);
          });
          // A rank that has not called by then is not listed.
          const bool is_named =
              text.find("rank 1 called allreduce of 1000 f32, sum, f16 on the wire") != std::string::npos &&
              (text.find("ranks 0, 2 called allreduce of 1000 f32, sum") != std::string::npos ||
               text.find("rank 0 called allreduce of 1000 f32, sum") != std::string::npos ||
               text.find("rank 2 called allreduce of 1000 f32, sum") != std::string::npos);
          return is_named ? "" : "unnamed: " + text;
        }) == "");
}

TEST_CASE("groups with tags are found in whatever order ranks make them", "[mismatch]") {
  CHECK(with_ranks(2, [](CommGroup& world) -> Verdict {
          const std::vector<int> both{0, 1};
          const bool is_first = world.rank() == 0;
          CommGroup one = world.create(both, is_first ? "a" : "b");
          CommGroup two = world.create(both, is_first ? "b" : "a");
          CommGroup& a = is_first ? one : two;
          CommGroup& b = is_first ? two : one;
          std::vector<int> in_a{is_first ? 111 : -1}, in_b{is_first ? 222 : -1};
          wait_all({{a.ibroadcast(std::span(in_a), 0), b.ibroadcast(std::span(in_b), 0)}});
          return in_a[0] == 111 && in_b[0] == 222 ? "" : "swapped";
        }) == "");
  // A split is no create: both may lead to equal lists.
  CHECK(with_ranks(2, [](CommGroup& world) -> Verdict {
          const std::vector<int> both{0, 1};
          CommGroup made, part;
          if (world.rank() == 0) made = world.create(both);
          part = world.split(0);
          if (world.rank() == 1) made = world.create(both);
          std::vector<int> in_made{world.rank() == 0 ? 111 : -1}, in_part{world.rank() == 0 ? 222 : -1};
          wait_all({{made.ibroadcast(std::span(in_made), 0), part.ibroadcast(std::span(in_part), 0)}});
          return in_made[0] == 111 && in_part[0] == 222 ? "" : "swapped";
        }) == "");
}

// -- at the deadline ----------------------------------------------------------------------------------------

namespace {

using Catch::Matchers::Contains;

constexpr std::chrono::milliseconds kShort{500};

// Every rank runs `body`, and keeps the groups that it makes until all ranks have: what they are told, by
// rank. Every exception must be a timeout that has a peer.
std::string timeouts_of(int size, const std::function<void(CommGroup&, std::vector<CommGroup>&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  std::atomic<int> running{size};
  std::atomic<bool> is_over{false};
  const Verdict verdict = with_ranks(
      size,
      [&](CommGroup& world) -> Verdict {
        std::vector<CommGroup> groups;
        Verdict found;
        try {
          body(world, groups);
        } catch (const Error& error) {
          texts[static_cast<std::size_t>(world.rank())] = error.what();
          if (error.code() != StatusCode::timeout || error.peer() < 0) found = error.what();
        }
        if (--running == 0) is_over = true;
        return becomes_true(is_over) ? found : "the others are still at it";
      },
      kShort);
  if (!verdict.empty()) return verdict;
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

}  // namespace

TEST_CASE("groups used in opposite orders by one thread of each rank are named before the deadline",
          "[mismatch]") {
  const std::string why =
      "the ranks use their groups in different orders: world rank 0 waits for world rank 1 in allreduce of 4 "
      "i32, sum, operation 1 of the group of world ranks 0, 1; world rank 1 waits for world rank 0 in "
      "broadcast of 4 i32, root 1, operation 1 of the group of world ranks 1, 0";
  CHECK(with_ranks(2, [&](CommGroup& world) -> Verdict {
          const std::vector<int> rising{0, 1}, falling{1, 0};
          const CommGroup first = world.create(rising), second = world.create(falling);
          std::vector<int> one(4, 1);
          try {
            if (world.rank() == 0) first.allreduce(std::span(one));
            second.broadcast(std::span(one), 1);
          } catch (const Error& error) {
            const bool is_named = error.code() == StatusCode::mismatch && error.peer() >= 0;
            return is_named && std::string(error.what()).find(why) != std::string::npos ? "" : error.what();
          }
          return "silent";
        }) == "");
}

// The other thread of each rank calls what the first one waits for, after the ranks have told each other.
TEST_CASE("two threads of each rank may use two groups in opposite orders", "[mismatch]") {
  CHECK(with_ranks(2, [](CommGroup& world) -> Verdict {
          const std::vector<int> both{0, 1};
          const std::vector<CommGroup> groups{world.create(both, "a"), world.create(both, "b")};
          const CommGroup own = world.create(std::vector<int>{world.rank()});
          std::vector<int> one(4, 1), other(4, 1);
          const auto mine = static_cast<std::size_t>(world.rank());
          Verdict found;
          std::thread late([&] {
            try {
              own.barrier();
              // Nothing shows that the ranks have told each other; on a slow machine this tests less.
              std::this_thread::sleep_for(std::chrono::milliseconds(300));
              groups[1 - mine].allreduce(std::span(other));
            } catch (const Error& error) {
              found = error.what();
            }
          });
          Verdict own_found;
          try {
            groups[mine].allreduce(std::span(one));
          } catch (const Error& error) {
            own_found = error.what();
          }
          late.join();
          return found + own_found;
        }) == "");
}

TEST_CASE("groups used in opposite orders are named at the deadline", "[mismatch]") {
  const std::string text = timeouts_of(2, [](CommGroup& world, std::vector<CommGroup>& groups) {
    const std::vector<int> both{0, 1};
    groups = {world.create(both, "a"), world.create(both, "b")};
    std::vector<int> one(4, 1);
    // Another thread may still call, so nothing is certain before.
    std::thread([&] { world.create(std::vector<int>{world.rank()}).barrier(); }).join();
    groups[static_cast<std::size_t>(world.rank())].allreduce(std::span(one));
  });
  const std::string why =
      "is in another operation: allreduce of 4 i32, sum, operation 1 of the group of world ranks 0, 1, which "
      "has this "
      "rank, "
      "too: the ranks use their groups in different orders; it is alive but has called nothing yet";
  CHECK_THAT(text, Contains("did not arrive: rank 1 (pid ") && Contains("did not arrive: rank 0 (pid "));
  CHECK_THAT(text, Contains(why));
}

TEST_CASE("groups made of different lists are named at the deadline", "[mismatch]") {
  const std::string text = timeouts_of(3, [](CommGroup& world, std::vector<CommGroup>& groups) {
    const std::vector<int> all{0, 1, 2}, two{0, 1};
    if (world.rank() == 2) return;
    groups = {world.create(world.rank() == 0 ? all : two)};
    groups[0].barrier();
  });
  CHECK_THAT(text,
             Contains("is in another operation: barrier, operation 1 of the group of world ranks 0, 1, which "
                      "this rank is to be in but has not made: create was called with other ranks or another "
                      "tag, or not as often; it is alive but has left the group or not made it yet"));
}

TEST_CASE("crossed tags are named at the deadline", "[mismatch]") {
  const std::string text = timeouts_of(2, [](CommGroup& world, std::vector<CommGroup>&) {
    std::vector<int> one(4, 1);
    if (world.rank() == 0) {
      world.send(std::span(one), 1, 3);
      world.send(std::span(one), 1, 4);
    } else {
      world.recv(std::span(one), 0, 4);
      world.recv(std::span(one), 0, 3);
    }
  });
  CHECK_THAT(text, Contains("not received yet: tag 3 of rank 0") &&
                       (Contains("is in another operation: send_recv of 4 i32 to rank 1, tag 3") ||
                        Contains("is in another operation: send_recv of 4 i32 from rank 0, tag 4")));
}

TEST_CASE("an unmatched receive says at the deadline what its sender does", "[mismatch]") {
  const std::string text = timeouts_of(2, [](CommGroup& world, std::vector<CommGroup>&) {
    std::vector<int> one(4, 1);
    if (world.rank() == 0) world.recv(std::span(one), 1);
  });
  CHECK_THAT(text,
             Contains("send_recv of 4 i32 from rank 1 is not complete yet within 0.5 s; rank 1 (pid ") &&
                 Contains("is late: it is alive but has called nothing yet"));
}

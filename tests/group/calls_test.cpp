// Calls in the manner of other libraries, through the public interface with threads as ranks: counts only at
// the root, in place, interleaved buffers, elements of several numbers. Also one rank, waiting beside another
// library, and completions in a thread of the program's choice.
#include <atomic>
#include <complex>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

using Ints = std::vector<int>;
using List = std::vector<std::uint64_t>;

Verdict expect(const char* what, const Ints& got, const Ints& wanted) {
  if (got == wanted) return {};
  Verdict text = std::string(what) + ":";
  for (const int value : got) text += " " + std::to_string(value);
  text += " instead of";
  for (const int value : wanted) text += " " + std::to_string(value);
  return text;
}

// Everything by control blocks where they carry it, and by messages.
Verdict with_ranks_both_ways(int size, const std::function<Verdict(CommGroup&)>& body) {
  Verdict verdict = with_ranks(size, body);
  const Variables off{{"TUTTI_CONTROL_BLOCKS", "off"}};
  return verdict + with_ranks(size, body);
}

}  // namespace

TEST_CASE("gatherv and scatterv with the counts at the root alone") {
  CHECK(
      with_ranks(3, [](CommGroup& g) -> Verdict {
        const int r = g.rank();
        const List counts{1, 0, 2}, places{4, 0, 1}, garbage{9, 9, 9};
        const Ints mine(counts[static_cast<std::size_t>(r)], r + 1);
        for (const int root : {2, 0}) {
          const bool is_root = r == root;
          Ints out(6, -1);
          g.gatherv(mine.data(), mine.size(), out.data(), is_root ? Counts(counts) : Counts(garbage),
                    is_root ? Counts(places) : Counts(), Dtype::i32, root);
          if (auto v = expect("gatherv", out, is_root ? Ints{-1, 3, 3, -1, 1, -1} : Ints(6, -1)); !v.empty())
            return v;
          const Ints whole{10, 20, 30, 40, 50, 60};
          Ints got(mine.size(), -1);
          const Work work =
              g.iscatterv(is_root ? whole.data() : nullptr, is_root ? Counts(counts) : Counts(),
                          is_root ? Counts(places) : Counts(), got.data(), got.size(), Dtype::i32, root);
          work.wait();
          const std::vector<Ints> parts{{50}, {}, {20, 30}};
          if (auto v = expect("scatterv", got, parts[static_cast<std::size_t>(r)]); !v.empty()) return v;
        }
        // In place at the root: its block is there already.
        Ints whole(6, -1);
        if (r == 2) whole[1] = whole[2] = 3;
        g.gatherv(r == 2 ? &whole[1] : mine.data(), mine.size(), whole.data(), counts, places, Dtype::i32, 2);
        if (r == 2) {
          if (auto v = expect("gatherv in place", whole, {-1, 3, 3, -1, 1, -1}); !v.empty()) return v;
        }
        CallOptions options;
        options.algorithm = "binomial";
        const std::string refused = error_of([&] {
          g.gatherv(mine.data(), mine.size(), whole.data(), counts, places, Dtype::i32, 2, options);
        });
        return refused.find("'binomial' needs the counts on all ranks") != std::string::npos ? "" : refused;
      }) == "");
}

TEST_CASE("a count that the root has otherwise is an error on both") {
  CHECK(with_ranks(
            2,
            [](CommGroup& g) -> Verdict {
              const List counts{1, 2};
              Ints mine(3, g.rank()), out(3, -1);
              const std::string error = error_of([&] {
                g.gatherv(mine.data(), g.rank() == 0 ? 1 : 3, out.data(), counts, {}, Dtype::i32, 0);
                g.barrier();
              });
              return error.empty() ? "no error" : "";
            },
            3s) == "");
}

TEST_CASE("alltoallv in place") {
  CHECK(with_ranks(4, [](CommGroup& g) -> Verdict {
          const int p = g.size(), r = g.rank();
          // Ranks a and b swap a + b elements, with a hole behind each block.
          List counts, places;
          std::uint64_t end = 0;
          for (int peer = 0; peer < p; ++peer) {
            counts.push_back(static_cast<std::uint64_t>(r + peer));
            places.push_back(end);
            end += counts.back() + 1;
          }
          Ints v(end, -1), wanted(end, -1);
          for (int peer = 0; peer < p; ++peer) {
            for (int i = 0; i < r + peer; ++i) {
              const auto at = static_cast<std::size_t>(i) + places[static_cast<std::size_t>(peer)];
              v[at] = 1000 * r + 100 * peer + i;
              wanted[at] = 1000 * peer + 100 * r + i;
            }
          }
          g.alltoallv(v.data(), counts, places, v.data(), counts, places, Dtype::i32);
          return expect("alltoallv", v, wanted);
        }) == "");
}

TEST_CASE("blocks of the input lie between those of the output") {
  CHECK(with_ranks_both_ways(3, [](CommGroup& g) -> Verdict {
          const int p = g.size(), r = g.rank();
          List counts(static_cast<std::size_t>(p), 1), places;
          for (int i = 0; i < p; ++i) places.push_back(static_cast<std::uint64_t>(2 * i));
          Ints v(6, -1);
          v[1] = r;
          g.allgatherv(&v[1], v.data(), counts, places, Dtype::i32);
          if (auto x = expect("allgatherv", v, {0, r, 1, -1, 2, -1}); !x.empty()) return x;
          for (int i = 0; i < p; ++i) v[static_cast<std::size_t>(2 * i)] = 10 * r + i;
          g.alltoallv(v.data(), counts, places, &v[1], counts, places, Dtype::i32);
          return expect("alltoallv", v, {10 * r, r, 10 * r + 1, 10 + r, 10 * r + 2, 20 + r});
        }) == "");
}

TEST_CASE("in place, scatter and reduce_scatter leave the blocks of other ranks alone") {
  CHECK(with_ranks_both_ways(4, [](CommGroup& g) -> Verdict {
          const auto p = static_cast<std::size_t>(g.size()), r = static_cast<std::size_t>(g.rank());
          for (const char* algorithm : {"", "ring", "halving", "direct", "pat", "circulant", "bine"}) {
            for (const std::size_t n : {1, 1000, 40000}) {
              for (const bool is_scaled : {false, true}) {
                Ints v(n * p, 1);
                CallOptions options;
                options.algorithm = algorithm;
                g.reduce_scatter(v.data(), v.data() + n * r, n, Dtype::i32,
                                 is_scaled ? Reduction::premul_sum_integer(2) : Op::sum, options);
                const int sum = is_scaled ? 8 : 4;
                for (std::size_t i = 0; i < v.size(); ++i) {
                  if (v[i] != (i / n == r ? sum : 1))
                    return std::string("reduce_scatter ") + algorithm + " of " + std::to_string(n) +
                           ": element " + std::to_string(i) + " is " + std::to_string(v[i]);
                }
              }
            }
          }
          const List counts{3, 0, 5, 2};
          Ints w(10, 1);
          const List starts{0, 3, 3, 8};
          g.reduce_scatterv(w.data(), w.data() + starts[r], counts, Dtype::i32);
          for (std::size_t i = 0; i < w.size(); ++i) {
            if (w[i] != (i >= starts[r] && i < starts[r] + counts[r] ? 4 : 1)) return "reduce_scatterv";
          }
          for (const char* algorithm : {"", "binomial", "linear"}) {
            for (const std::size_t n : {1, 1000, 40000}) {
              Ints whole(n * p), own(n, -1);
              for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int>(i);
              const Ints before = whole;
              CallOptions options;
              options.algorithm = algorithm;
              int* const to = r == 1 ? whole.data() + n : own.data();
              g.scatter(whole.data(), to, n, Dtype::i32, 1, options);
              if (whole != before) return std::string("scatter ") + algorithm + " changed its input";
              if (to[n - 1] != static_cast<int>(n * (r + 1) - 1)) return std::string("scatter ") + algorithm;
            }
          }
          return {};
        }) == "");
}

TEST_CASE("complex numbers, pairs, logical xor and opaque elements, by every way") {
  CHECK(with_ranks_both_ways(3, [](CommGroup& g) -> Verdict {
          const int r = g.rank();
          for (const std::size_t n : {1, 5, 3000}) {
            std::vector<std::complex<float>> z(n, {1.0F, static_cast<float>(r)});
            g.allreduce(std::span(z));
            if (z[n - 1] != std::complex<float>(3, 3)) return "sum of complex f32";
            std::vector<std::complex<double>> w(n, {0, 1}), product(n);
            g.allreduce(std::span<const std::complex<double>>(w), std::span(product), Op::prod);
            if (product[n - 1] != std::complex<double>(0, -1)) return "product of complex f64";
            g.allreduce(std::span(w), Op::avg);
            if (w[n - 1] != std::complex<double>(0, 1)) return "average of complex f64";
            g.allreduce(std::span(w), Reduction::premul_sum(0.5));
            if (w[n - 1] != std::complex<double>(0, 1.5)) return "scaled sum of complex f64";
            using Pair = ValueIndex<double, std::int32_t>;
            std::vector<Pair> pairs(n);
            for (std::size_t i = 0; i < n; ++i) pairs[i] = {static_cast<double>((r + i) % 3), r};
            std::vector<Pair> least(n), greatest(n);
            g.allreduce(std::span<const Pair>(pairs), std::span(least), Op::minloc);
            g.reduce(std::span<const Pair>(pairs), std::span(greatest), Op::maxloc, 1);
            for (std::size_t i = 0; i < n; ++i) {
              const auto of = static_cast<int>((3 - i % 3) % 3);
              if (least[i].value != 0 || least[i].index != of) return "minloc";
              if (r == 1 && (greatest[i].value != 2 || greatest[i].index != (of + 2) % 3)) return "maxloc";
            }
            Ints truth(n, r == 0 ? 0 : 7);
            g.allreduce(std::span(truth), Op::lxor);
            if (truth[n - 1] != 0) return "lxor";
            // Elements of 20 bytes: the ranks that took part, in order.
            struct Names {
              int count;
              int ranks[4];
            };
            const auto append = Reduction::user(
                [](void*, void* dst, const void* a, const void* b, std::size_t count) noexcept {
                  for (std::size_t i = 0; i < count; ++i) {
                    Names both = static_cast<const Names*>(a)[i];
                    const Names next = static_cast<const Names*>(b)[i];
                    for (int k = 0; k < next.count; ++k) both.ranks[both.count++] = next.ranks[k];
                    static_cast<Names*>(dst)[i] = both;
                  }
                },
                nullptr, false, sizeof(Names));
            std::vector<Names> names(n, Names{1, {r, -1, -1, -1}});
            g.allreduce(names.data(), names.data(), n, Dtype::opaque, append);
            const Names& last = names[n - 1];
            if (last.count != 3 || last.ranks[0] != 0 || last.ranks[1] != 1 || last.ranks[2] != 2)
              return "opaque elements";
          }
          return {};
        }) == "");
}

TEST_CASE("thousands of different user-defined ops") {
  CHECK(with_ranks(2, [](CommGroup& g) -> Verdict {
          std::vector<int> addends(5000);
          for (std::size_t i = 0; i < addends.size(); ++i) addends[i] = static_cast<int>(i);
          for (int& addend : addends) {
            const auto op = Reduction::user(
                [](void* context, void* dst, const void* a, const void* b, std::size_t) noexcept {
                  *static_cast<int*>(dst) =
                      *static_cast<const int*>(a) + *static_cast<const int*>(b) + *static_cast<int*>(context);
                },
                &addend, true);
            int x = 1;
            g.allreduce(&x, &x, 1, Dtype::i32, op);
            if (x != 2 + addend) return "op " + std::to_string(addend) + " gave " + std::to_string(x);
          }
          return {};
        }) == "");
}

TEST_CASE("a group of one rank: results at once, and its failure") {
  CHECK(with_ranks(1, [](CommGroup& g) -> Verdict {
          const Ints in{1, 2, 3};
          Ints out(3, -1);
          for (int i = 0; i < 3; ++i) {
            std::fill(out.begin(), out.end(), -1);
            g.allreduce(std::span<const int>(in), std::span(out), Op::avg);
            if (auto v = expect("allreduce", out, in); !v.empty()) return v;
          }
          const Work work = g.iallgather(std::span<const int>(in).first(1), std::span(out).first(1));
          if (!work.test()) return "a work that is not complete";
          g.allreduce(std::span<const int>(in), std::span(out), Reduction::premul_sum_integer(3));
          if (auto v = expect("premul_sum", out, {3, 6, 9}); !v.empty()) return v;
          const List one{2}, at{1}, zero{0};
          std::fill(out.begin(), out.end(), -1);
          g.alltoallv(in.data(), one, at, out.data(), one, zero, Dtype::i32);
          if (auto v = expect("alltoallv", out, {2, 3, -1}); !v.empty()) return v;
          g.allgatherv(in.data(), out.data(), one, at, Dtype::i32);
          if (auto v = expect("allgatherv", out, {2, 1, 2}); !v.empty()) return v;
          g.scatterv(in.data(), one, at, out.data(), 2, Dtype::i32, 0);
          if (auto v = expect("scatterv", out, {2, 3, 2}); !v.empty()) return v;
          g.abort("enough");
          for (int i = 0; i < 2; ++i) {
            const std::string error =
                error_of([&] { g.allreduce(std::span<const int>(in), std::span(out), Op::avg); });
            if (error.find("enough") == std::string::npos) return "no failure, but '" + error + "'";
          }
          return {};
        }) == "");
}

namespace {

// Stands for another library: only calls make progress.
struct OtherLibrary {
  std::atomic<int> calls{0};
  std::atomic<bool> has_delivered{false};
  static void progress(void* context) noexcept {
    auto& self = *static_cast<OtherLibrary*>(context);
    if (self.calls.fetch_add(1) >= 3) self.has_delivered.store(true);
  }
  CallOptions options() {
    CallOptions options;
    options.while_waiting = &progress;
    options.while_waiting_context = this;
    return options;
  }
};

}  // namespace

TEST_CASE("a rank that waits moves another library on, which its peer waits for") {
  const auto wait = GENERATE(0, 1, 2, 3);
  CAPTURE(wait);
  OtherLibrary other;
  CHECK(with_ranks(2, [&](CommGroup& g) -> Verdict {
          int x = g.rank(), sum = -1;
          for (int warm = 0; warm < 20; ++warm) g.allreduce(&x, &sum, 1, Dtype::i32);
          if (g.rank() == 1) {
            if (!becomes_true(other.has_delivered)) return "nothing was delivered";
            g.allreduce(&x, &sum, 1, Dtype::i32);
          } else if (wait == 0) {
            g.allreduce(&x, &sum, 1, Dtype::i32, Op::sum, other.options());
          } else {
            const Work work = g.iallreduce(&x, &sum, 1, Dtype::i32, Op::sum, other.options());
            if (wait == 1) work.wait();
            if (wait == 2 && !work.wait_for(15s)) return "not complete";
            if (wait == 3) work.wait_within(15s);
          }
          return sum == 1 ? "" : "wrong sum";
        }) == "");
}

TEST_CASE("a function that is called while waiting must not wait itself") {
  struct Asked {
    CommGroup group;
    std::string error;
    std::atomic<bool> has_run{false};
  } asked;
  CHECK(with_ranks(2, [&](CommGroup& g) -> Verdict {
          if (g.rank() == 0) asked.group = g.stream(1);
          g.barrier();
          if (g.rank() == 1) {
            if (!becomes_true(asked.has_run)) return "it was not called";
            g.barrier();
            return {};
          }
          CallOptions options;
          options.while_waiting_context = &asked;
          options.while_waiting = [](void* context) noexcept {
            auto& self = *static_cast<Asked*>(context);
            if (self.has_run.load()) return;
            self.error = error_of([&] { self.group.barrier(); });
            self.has_run.store(true);
          };
          g.barrier(options);
          asked.group = {};
          return {};
        }) == "");
  CHECK_THAT(asked.error, Contains("called while waiting"));
}

TEST_CASE("a completion queue hands out what was added, in the thread that polls") {
  CHECK(with_ranks(2, [](CommGroup& g) -> Verdict {
          CompletionQueue queue;
          if (queue.poll()) return "something in an empty queue";
          std::vector<Ints> buffers(8, Ints(100, g.rank()));
          for (std::size_t i = 0; i < buffers.size(); ++i)
            queue.add(g.iallreduce(std::span(buffers[i])), 100 + i);
          Ints message(1, g.rank());
          if (g.rank() == 0) {
            queue.add(g.isend(std::span(message), 1, 7), 5);
          } else {
            queue.add(g.irecv(std::span(message), kAnySource, 7), 5);
          }
          queue.add(Work(), 6);  // complete already
          if (queue.size() != 10) return "size";
          std::vector<bool> seen(200, false);
          while (queue.size() > 0) {
            const auto done = queue.poll();
            if (!done) continue;
            if (done->error) return done->error->what();
            if (seen[done->tag]) return "handed out twice";
            seen[done->tag] = true;
            if (done->tag == 5 && done->source != (g.rank() == 1 ? 0 : -1)) return "source";
            if (done->tag >= 100 && buffers[done->tag - 100] != Ints(100, 1)) return "sum";
          }
          if (queue.poll()) return "one more";
          // Rank 0 aborts the group once rank 1 has all that it polled for, and may do so before rank 1 has
          // left the barrier.
          try {
            g.barrier();
          } catch (const Error& error) {
            if (g.rank() == 0) return error.what();
          }
          // One that fails, and one that is dropped with its queue.
          Ints v(1), w(1);
          CompletionQueue dropped;
          if (g.rank() == 0) {
            queue.add(g.irecv(std::span(v), 1, 9), 1);
            dropped.add(g.irecv(std::span(w), 1, 10), 1);
            g.abort("enough");
            std::optional<CompletionQueue::Completion> done;
            while (!(done = queue.poll())) {
            }
            if (!done->error || done->error->code() != StatusCode::aborted) return "no failure";
          }
          return {};
        }) == "");
}

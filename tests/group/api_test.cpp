// The public interface with threads as ranks: every collective once against its definition, groups, errors,
// shared memory. Tests of the interface; tests/collectives has the results for all counts, dtypes and
// algorithms.
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;
using namespace std::chrono_literals;

namespace {

template <class T>
Verdict expect(const char* what, const std::vector<T>& got, const std::vector<T>& wanted) {
  if (got == wanted) return {};
  Verdict text = std::string(what) + ":";
  for (const T& value : got) text += " " + std::to_string(value);
  text += " instead of";
  for (const T& value : wanted) text += " " + std::to_string(value);
  return text;
}

}  // namespace

TEST_CASE("every collective, typed") {
  const int size = GENERATE(1, 2, 3, 4);
  CHECK(with_ranks(size, [](CommGroup& g) -> Verdict {
          const int p = g.size(), r = g.rank();
          const std::int64_t all = p * (p - 1) / 2;
          std::vector<std::int64_t> one{r}, big(static_cast<std::size_t>(p)),
              out(static_cast<std::size_t>(p)), ids(static_cast<std::size_t>(p));
          std::iota(ids.begin(), ids.end(), 0);
          g.allreduce(std::span(one));
          if (auto v = expect("allreduce", one, {all}); !v.empty()) return v;
          one[0] = r + 10;
          g.broadcast(std::span(one), p - 1);
          if (auto v = expect("broadcast", one, {std::int64_t{p + 9}}); !v.empty()) return v;
          std::vector<std::int64_t> mine{r}, got{-1};
          g.reduce(std::span(mine), std::span(got), Op::max, 0);
          if (auto v = expect("reduce", got, {r == 0 ? std::int64_t{p - 1} : std::int64_t{-1}}); !v.empty())
            return v;
          g.allgather(std::span(mine), std::span(out));
          if (auto v = expect("allgather", out, ids); !v.empty()) return v;
          got[0] = -1;
          g.reduce_scatter(std::span(ids), std::span(got));
          if (auto v = expect("reduce_scatter", got, {std::int64_t{p * r}}); !v.empty()) return v;
          for (int i = 0; i < p; ++i) big[static_cast<std::size_t>(i)] = 100 * r + i;
          g.alltoall(std::span(big), std::span(out));
          std::vector<std::int64_t> wanted;
          for (int i = 0; i < p; ++i) wanted.push_back(100 * i + r);
          if (auto v = expect("alltoall", out, wanted); !v.empty()) return v;
          std::fill(out.begin(), out.end(), -1);
          g.gather(std::span(mine), std::span(out), 0);
          if (auto v = expect("gather", out, r == 0 ? ids : std::vector<std::int64_t>(ids.size(), -1));
              !v.empty())
            return v;
          g.scatter(std::span(ids), std::span(got), 0);
          if (auto v = expect("scatter", got, mine); !v.empty()) return v;
          g.scan(std::span(mine), std::span(got));
          if (auto v = expect("scan", got, {std::int64_t{r * (r + 1) / 2}}); !v.empty()) return v;
          got[0] = 77;
          g.exscan(std::span(mine), std::span(got));
          if (auto v = expect("exscan", got, {r == 0 ? std::int64_t{77} : std::int64_t{r * (r - 1) / 2}});
              !v.empty())
            return v;
          got[0] = 77;
          g.exscan(std::span(mine), std::span(got), Op::avg);
          if (auto v = expect("exscan of averages", got,
                              {r == 0 ? std::int64_t{77} : std::int64_t{r * (r - 1) / 2 / p}});
              !v.empty())
            return v;
          g.barrier();
          if (p > 1 && r < 2) {
            std::vector<std::int64_t> message{42 + r};
            Work sent = g.isend(std::span(message), 1 - r);
            g.recv(std::span(got), 1 - r);
            sent.wait();
            if (auto v = expect("recv", got, {std::int64_t{43 - r}}); !v.empty()) return v;
          }
          return {};
        }) == "");
}

TEST_CASE("v-variants take counts and displacements per rank") {
  CHECK(with_ranks(3, [](CommGroup& g) -> Verdict {
          const auto r = static_cast<std::size_t>(g.rank());
          const std::vector<std::uint64_t> counts{1, 0, 2}, places{4, 0, 1};
          const std::vector<int> mine(counts[r], static_cast<int>(r) + 1);
          std::vector<int> out(6, -1);
          g.allgatherv(mine.data(), out.data(), counts, places, Dtype::i32);
          if (auto v = expect("allgatherv", out, {-1, 3, 3, -1, 1, -1}); !v.empty()) return v;
          std::fill(out.begin(), out.end(), -1);
          g.gatherv(mine.data(), out.data(), counts, {}, Dtype::i32, 2);
          if (auto v = expect("gatherv", out,
                              r == 2 ? std::vector<int>{1, 3, 3, -1, -1, -1} : std::vector<int>(6, -1));
              !v.empty())
            return v;
          const std::vector<int> whole{10, 20, 30, 40, 50, 60};
          std::vector<int> got(counts[r], -1);
          g.scatterv(whole.data(), got.data(), counts, places, Dtype::i32, 0);
          const std::vector<std::vector<int>> parts{{50}, {}, {20, 30}};
          if (auto v = expect("scatterv", got, parts[r]); !v.empty()) return v;
          const std::vector<int> three{1, 2, 3};
          g.reduce_scatterv(three.data(), got.data(), counts, Dtype::i32);
          const std::vector<std::vector<int>> sums{{3}, {}, {6, 9}};
          if (auto v = expect("reduce_scatterv", got, sums[r]); !v.empty()) return v;
          // Rank r sends r + 1 elements to everybody.
          const std::vector<std::uint64_t> send(3, r + 1), receive{1, 2, 3};
          const std::vector<int> sent(3 * (r + 1), static_cast<int>(r));
          std::vector<int> received(6, -1);
          g.alltoallv(sent.data(), send, {}, received.data(), receive, {}, Dtype::i32);
          return expect("alltoallv", received, {0, 1, 1, 2, 2, 2});
        }) == "");
}

TEST_CASE("in place, as each function says") {
  CHECK(with_ranks(3, [](CommGroup& g) -> Verdict {
          const int r = g.rank();
          std::vector<int> v(3, -1);
          v[static_cast<std::size_t>(r)] = r;
          g.allgather(v.data() + r, v.data(), 1, Dtype::i32);
          if (auto x = expect("allgather", v, {0, 1, 2}); !x.empty()) return x;
          g.reduce_scatter(v.data(), v.data() + r, 1, Dtype::i32);
          if (v[static_cast<std::size_t>(r)] != 3 * r) return "reduce_scatter";
          v = {10 * r, 10 * r + 1, 10 * r + 2};
          g.alltoall(v.data(), v.data(), 1, Dtype::i32);
          if (auto x = expect("alltoall", v, {r, 10 + r, 20 + r}); !x.empty()) return x;
          v = {r, r, r};
          g.gather(v.data() + r, v.data(), 1, Dtype::i32, 1);
          if (r == 1) {
            if (auto x = expect("gather", v, {0, 1, 2}); !x.empty()) return x;
          }
          v = {5, 6, 7};
          g.scatter(v.data(), v.data() + r, 1, Dtype::i32, 2);
          if (v[static_cast<std::size_t>(r)] != 5 + r) return "scatter";
          v = {r, r, r};
          g.reduce(v.data(), v.data(), 3, Dtype::i32, Op::sum, 0);
          if (auto x = expect("reduce", v, r == 0 ? std::vector<int>{3, 3, 3} : std::vector<int>{r, r, r});
              !x.empty())
            return x;
          return {};
        }) == "");
}

TEST_CASE("groups from groups") {
  CHECK(with_ranks(4, [](CommGroup& g) -> Verdict {
          const int r = g.rank();
          const CommGroup reversed = g.split(0, -r);
          if (reversed.rank() != 3 - r || reversed.size() != 4) return "split by key";
          const CommGroup some = g.split(r == 2 ? -1 : 5);
          if (some.is_open() == (r == 2)) return "split without colour";
          if (some.is_open() && some.size() != 3) return "split size";
          const CommGroup node = g.split_by_node();
          if (node.size() != 4 || node.rank() != r || g.local_rank() != r || g.local_size() != 4)
            return "split_by_node";
          if (r == 1 || r == 3) {  // the others do not take part
            const std::vector<int> list{3, 1};
            for (int i = 0; i < 3; ++i) {
              const CommGroup pair = g.create(list);
              if (pair.rank() != (r == 3 ? 0 : 1)) return "create";
              std::vector<int> value{r};
              pair.allreduce(std::span(value));
              if (value[0] != 4) return "create: sum";
            }
          }
          // Several groups over the same ranks, used alternately.
          const CommGroup a = g.split(r % 2), b = g.split(r % 2), c = reversed.split(r / 2);
          std::vector<int> x{1}, y{10}, z{100};
          Work wx = a.iallreduce(std::span(x)), wy = b.iallreduce(std::span(y)),
               wz = c.iallreduce(std::span(z));
          wz.wait();
          wy.wait();
          wx.wait();
          return x[0] == 2 && y[0] == 20 && z[0] == 200 ? "" : "three groups at once";
        }) == "");
}

TEST_CASE("non-blocking work is tested, waited for with a limit, copied and dropped") {
  CHECK(with_ranks(2, [](CommGroup& g) -> Verdict {
          std::vector<float> v(1000, 1.0F);
          if (g.rank() == 0) {
            Work work = g.iallreduce(std::span(v), Op::avg);
            if (work.wait_for(20ms)) return "complete although rank 1 has not called";
            int questions = 0;
            const auto is_second = [](void* context) { return ++*static_cast<int*>(context) == 2; };
            if (work.wait_unless(is_second, &questions)) return "nobody interrupted the wait";
            if (questions != 2) return "asked again after the interruption";
            const Work copy = work;
            g.isend(v.data(), 0, Dtype::u8, 1);  // dropped; tells rank 1 to go on
            while (!copy.test()) {
            }
            if (!work.wait_unless([](void*) { return true; }, nullptr))
              return "interrupted although complete";
            work.wait();
            work.wait();  // again
          } else {
            g.recv(v.data(), 0, Dtype::u8, 0);
            g.allreduce(std::span(v), Op::avg);
          }
          Work().wait();
          Work().wait_unless(nullptr, nullptr);
          return v[999] == 1.0F && Work().test() ? "" : "value";
        }) == "");
}

TEST_CASE("user-defined and scaled reductions") {
  CHECK(with_ranks(3, [](CommGroup& g) -> Verdict {
          // "b if b is not 0 else a" does not commute: the last rank's value wins.
          const auto last = Reduction::user(
              [](void*, void* dst, const void* a, const void* b, std::size_t n) noexcept {
                for (std::size_t i = 0; i < n; ++i) {
                  const int x = static_cast<const int*>(a)[i], y = static_cast<const int*>(b)[i];
                  static_cast<int*>(dst)[i] = y != 0 ? y : x;
                }
              },
              nullptr, false);
          for (int i = 0; i < 3; ++i) {
            std::vector<int> v{g.rank() + 1, g.rank() == 0 ? 9 : 0};
            g.allreduce(std::span(v), last);
            if (auto x = expect("user", v, {3, 9}); !x.empty()) return x;
          }
          std::vector<double> d{2};
          g.allreduce(std::span(d), Reduction::premul_sum(g.rank() + 0.5));
          if (auto x = expect("premul_sum", d, {9.0}); !x.empty()) return x;
          std::vector<int> k{2};
          g.allreduce(std::span(k), Reduction::premul_sum_integer(g.rank()));
          return expect("premul_sum_integer", k, {6});
        }) == "");
}

TEST_CASE("memory that all ranks of the node can map") {
  CHECK(with_ranks(3, [](CommGroup& g) -> Verdict {
          constexpr std::size_t kCount = 300000;
          auto* v = static_cast<int*>(alloc(g, kCount * sizeof(int)));
          if (reinterpret_cast<std::uintptr_t>(v) % 64 != 0 || v[kCount - 1] != 0)
            return "not aligned or not zeroed";
          for (std::size_t i = 0; i < kCount; ++i) v[i] = g.rank();
          g.allreduce(v, v, kCount, Dtype::i32);
          const bool is_right = v[0] == 3 && v[kCount - 1] == 3;
          g.barrier();
          free(g, v);
          free(g, nullptr);
          int stranger = 0;
          const Verdict refused = error_of([&] { free(g, &stranger); });
          if (refused.find("not from tutti::alloc") == std::string::npos) return refused;
          return is_right ? "" : "wrong sum";
        }) == "");
}

TEST_CASE("mistakes are named and change nothing") {
  CHECK(
      with_ranks(2, [](CommGroup& g) -> Verdict {
        std::vector<float> v(10, 1.0F), w(7);
        const std::vector<std::pair<std::function<void()>, std::string>> mistakes = {
            {[&] { g.broadcast(std::span(v), 2); },
             "broadcast: root: 2 is no rank of the group; expected 0 to 1"},
            {[&] { g.allreduce(nullptr, v.data(), 3, Dtype::f32); },
             "allreduce: input: a null pointer for 3 elements of f32"},
            {[&] { g.allgather(std::span(v), std::span(w)); }, "allgather: output: 7 elements, expected 20"},
            {[&] { g.alltoall(std::span(w), std::span(w)); },
             "alltoall: input: 7 elements, expected a multiple of 2, the size of the group"},
            {[&] {
               g.create(std::vector<int>{0, 0});
             },
             "create: ranks: 0 is listed twice"},
            {[&] { g.create(std::vector<int>{1 - g.rank()}); },
             "create: ranks: this rank, " + std::to_string(g.rank()) +
                 ", is not listed; only members call create"},
            {[&] { CommGroup().barrier(); }, "barrier: this CommGroup is closed (it is no group)"},
        };
        for (const auto& [mistake, text] : mistakes) {
          if (const Verdict said = error_of(mistake); said != text) return said + " instead of " + text;
        }
        const Verdict forced = error_of([&] { g.allreduce(std::span(v), Op::sum, {"no_such_algorithm"}); });
        if (forced.find("no_such_algorithm") == std::string::npos) return forced;
        g.allreduce(std::span(v));
        if (g.explain_algorithm(Collective::allreduce, 1000, Dtype::f32).empty()) return "explain_algorithm";
        return v[0] == 2.0F ? "" : "the group does not work any more";
      }) == "");
}

TEST_CASE("options of init that do not go together are named") {
  const auto said = [](const std::function<void(InitOptions&)>& change) {
    InitOptions options;
    change(options);
    return error_of([&] { init(options); });
  };
  CHECK(said([](InitOptions& o) { o.rank = 0; }) ==
        "init: rank and size go with unique_id, allgather, or put and get");
  CHECK(said([](InitOptions& o) { o.unique_id = "x"; }) ==
        "init: rank=-1 and size=-1: expected a size of at least 1 and a rank below it");
  CHECK(said([](InitOptions& o) {
          o.unique_id = "x";
          o.rank = 0;
          o.size = 1;
        }) == "unique id: this is not a text that make_unique_id() returned");
  CHECK(said([](InitOptions& o) { o.put = [](const std::string&, const std::string&) {}; }) ==
        "init: put and get go together");
  CHECK(said([](InitOptions& o) {
          o.unique_id = "x";
          o.allgather = [](std::string_view) { return std::vector<std::string>(); };
        }) == "init: give only one of unique_id, allgather, and put with get");
}

TEST_CASE("types of elements") {
  CHECK(dtype_of<long> == Dtype::i64);
  CHECK(dtype_of<long long> == Dtype::i64);
  CHECK(dtype_of<const unsigned char> == Dtype::u8);
  CHECK(dtype_of<BFloat16> == Dtype::bf16);
  CHECK(dtype_of<bool> == Dtype::boolean);
  CHECK(dtype_of<std::complex<double>> == Dtype::c128);
  CHECK(dtype_of<ValueIndex<double, std::int32_t>> == Dtype::f64_i32);
  CHECK(sizeof(ValueIndex<double, std::int32_t>) == 16);
}

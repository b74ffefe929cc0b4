// Streams that are closed: their memory serves the next ones, their numbers name new streams.
#include <fstream>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"

using namespace tutti;

namespace {

// MiB that a sanitizer maps meanwhile: freed memory that AddressSanitizer keeps, ThreadSanitizer's own tables (27 seen).
std::size_t held_by_sanitizer() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  return 256;
#elif __has_feature(thread_sanitizer)
  return 128;
#endif
#endif
  return 0;
}

std::size_t mapped_bytes() {
  std::ifstream status("/proc/self/statm");
  std::size_t pages = 0;
  status >> pages;
  return pages * 4096;
}

// On the small control blocks, the bulk control blocks, and as a message.
Verdict use(const CommGroup& group) {
  for (const std::size_t count : {1, 100000}) {
    std::vector<int> value(count, group.rank() + 1);
    group.allreduce(std::span(value));
    if (value.front() != 3 || value.back() != 3) return "wrong sum";
  }
  int mine = group.rank(), other = -1;
  const Work sent = group.isend(&mine, 1, Dtype::i32, 1 - group.rank());
  group.recv(&other, 1, Dtype::i32, 1 - group.rank());
  sent.wait();
  return other == 1 - group.rank() ? "" : "wrong message";
}

}  // namespace

TEST_CASE("streams and groups that are closed give their memory back") {
  for (const char* transport : {"shm", "inproc"}) {
    const Variables variables({{"TUTTI_TRANSPORTS", transport}});
    CHECK(with_ranks(2, [](CommGroup& g) -> Verdict {
            constexpr int kFirst = 30, kRounds = 200;
            const std::size_t slack = (24 + held_by_sanitizer())
                                      << 20U;  // a stream that stays takes 3 MiB, so 600 in all
            const std::vector<int> both{0, 1};
            std::size_t before = 0;
            for (int round = 0; round < kFirst + kRounds; ++round) {
              if (Verdict v = use(g.stream(1 + round % 2)); !v.empty()) return v;
              if (Verdict v = use(g.create(both)); !v.empty()) return v;
              g.close_stream(1 + round % 2);
              g.barrier();
              if (round == kFirst) before = mapped_bytes();
            }
            const std::size_t after = mapped_bytes();
            g.barrier();
            return after <= before + slack ? "" : std::to_string((after - before) >> 20U) + " MiB more";
          }) == "");
  }
}

TEST_CASE("a stream that is closed ends, also for handles that are left, and its number is a new stream") {
  CHECK(with_ranks(2, [](CommGroup& g) -> Verdict {
          const CommGroup old = g.stream(3);
          if (Verdict v = use(old); !v.empty()) return v;
          g.close_stream(3);
          const Verdict said = error_of([&] { old.barrier(); });
          if (said.find("stream 3 was closed") == std::string::npos) return "an old handle: " + said;
          if (g.failure()) return "the group failed";
          if (Verdict v = use(g.stream(3)); !v.empty()) return v;
          g.stream(3).close_stream(3);
          g.close_stream(7);  // nobody had asked for it
          if (Verdict v = use(g.stream(7)); !v.empty()) return v;
          if (error_of([&] { g.close_stream(0); }).find("expected 1 or more") == std::string::npos)
            return "stream 0 was closed";
          return use(g);
        }) == "");
}

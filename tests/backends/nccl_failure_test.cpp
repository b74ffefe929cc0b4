// What NCCL does not do, and how its errors, hangs and versions show: by words, in time, on every rank.
#include <fmt/format.h>

#include "backends/nccl/mapping.hpp"
#include "tests/backends/nccl_support.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

const bool is_named = use_stand_ins(CUDA_STAND_IN_FILE, NCCL_STAND_IN_FILE);

// A version that the stand-in plays, for load_library(); library() has been loaded by then, or is not asked.
class Version {
 public:
  explicit Version(const char* code) { ::setenv("NCCL_STAND_IN_VERSION", code, 1); }
  ~Version() { ::unsetenv("NCCL_STAND_IN_VERSION"); }
  Version(const Version&) = delete;
  Version& operator=(const Version&) = delete;
};

Call reduction(Dtype dtype, ReduceOp op) {
  Call call;
  call.dtype = dtype;
  call.op = op;
  call.is_device = true;
  return call;
}

// The reason, "" if it is carried out.
std::string refusal(const Call& call, int version = NCCL_VERSION_CODE) {
  return nccl::check_call(call, 0, 4, version).message();
}

}  // namespace

TEST_CASE("the library: absent, something else, too old, of the version that it says") {
  REQUIRE(is_named);
  CHECK_THAT(nccl::load_library("/nowhere/libnccl.so.2").status().message(),
             Contains("/nowhere/libnccl.so.2") && Contains("TUTTI_NCCL_LIBRARY"));
  CHECK_THAT(nccl::load_library(CUDA_STAND_IN_FILE).status().message(), Contains("no ncclGetVersion"));
  {
    const Version old("21703");
    const auto loaded = nccl::load_library(NCCL_STAND_IN_FILE);
    CHECK(loaded.status().code() == StatusCode::unsupported);
    CHECK_THAT(loaded.status().message(), Contains("is NCCL 2.17.3; 2.18 or newer"));
  }
  {
    const Version oldest("21801");
    const auto loaded = nccl::load_library(NCCL_STAND_IN_FILE);
    REQUIRE(loaded.is_ok());
    CHECK(loaded->register_memory == nullptr);
    CHECK(loaded->alltoall == nullptr);
  }
  {
    const Version middle("21900");
    const auto loaded = nccl::load_library(NCCL_STAND_IN_FILE);
    REQUIRE(loaded.is_ok());
    CHECK(loaded->register_memory != nullptr);
    CHECK(loaded->deregister_memory != nullptr);
    CHECK(loaded->gather == nullptr);
  }
  const auto newest = nccl::load_library(NCCL_STAND_IN_FILE);
  REQUIRE(newest.is_ok());
  CHECK(newest->alltoall != nullptr);
  CHECK(nccl::version_text(newest->version) == fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
}

TEST_CASE("what NCCL lacks is refused with the reason, the same on all ranks") {
  CHECK(refusal(reduction(Dtype::f8e4m3, Op::sum), 22400) == "");
  CHECK_THAT(refusal(reduction(Dtype::f8e4m3, Op::sum), 22304), Contains("2.24") && Contains("2.23.4"));
  for (const Dtype dtype : {Dtype::i16, Dtype::u16, Dtype::boolean})
    CHECK_THAT(refusal(reduction(dtype, Op::max)), Contains(std::string(to_string(dtype))));
  CHECK_THAT(refusal(reduction(Dtype::u8, Op::band)), Contains("band"));
  CHECK_THAT(refusal(reduction(Dtype::f32, Op::band)), !Contains("NCCL"));  // nobody does
  const UserOp op{[](void*, void*, const void*, const void*, std::size_t) noexcept {}, nullptr, true, 0};
  CHECK_THAT(refusal(reduction(Dtype::f32, ReduceOp::user_defined(op))), Contains("user"));
  Call call;
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    call.collective = collective;
    CHECK_THAT(refusal(call), Contains(std::string(to_string(collective))));
  }
  call.collective = Collective::send_recv;
  call.root = 1;
  CHECK(refusal(call) == "");
  call.tag = 3;
  CHECK_THAT(refusal(call), Contains("tag 3"));
  call.tag = 0;
  call.root = kFromAnyRank;
  CHECK_THAT(refusal(call), Contains("any rank"));
  call.root = 0;
  CHECK_THAT(refusal(call), Contains("another rank"));
  call.root = 4;
  CHECK_THAT(refusal(call), Contains("rank 4 of a group of 4"));
  // Moves do not look at elements.
  call = reduction(Dtype::boolean, {});
  call.collective = Collective::allgather;
  CHECK(refusal(call) == "");
}

TEST_CASE("two ranks on one GPU are refused by name, before NCCL is asked") {
  const unsigned long inits = nccl_stand_in_calls("ncclCommInitRankConfig");
  FakeGroup group(3, 20s);
  std::vector<std::future<std::string>> ranks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ranks.push_back(std::async(std::launch::async, [&group, i] {
      FakeServices services(group, i);
      const auto made = nccl::make_nccl_engine(services, i == 2 ? 0 : static_cast<int>(i));
      return made ? "made" : made.status().to_string();
    }));
  }
  for (auto& rank : ranks) CHECK_THAT(rank.get(), Contains("ranks 0 and 2 are on one GPU (0000:00:00.0)"));
  CHECK(group.failure().is_ok());
  CHECK(nccl_stand_in_calls("ncclCommInitRankConfig") == inits);
}

TEST_CASE("a rank that cannot take part is named, and all go another way") {
  FakeGroup group(2, 20s);
  std::vector<std::future<Status>> ranks;
  for (std::uint32_t i = 0; i < 2; ++i) {
    ranks.push_back(std::async(std::launch::async, [&group, i] {
      FakeServices services(group, i);
      return nccl::make_nccl_engine(services, i == 0 ? 0 : 77).status();
    }));
  }
  for (auto& rank : ranks) {
    const Status status = rank.get();
    CHECK(status.code() == StatusCode::unsupported);
    CHECK_THAT(status.message(), Contains("rank 1: ") && Contains("CUDA_ERROR_INVALID_DEVICE"));
  }
}

TEST_CASE("a communicator that does not come about ends in a timeout with words, and nothing is left") {
  nccl_stand_in_hang_init(true);
  FakeGroup group(2, 1600ms);
  const Verdict verdict = with_engines(group, [](Rank&) { return "made"; });
  nccl_stand_in_hang_init(false);
  CHECK_THAT(verdict, Contains("ncclCommInitRankConfig of rank 0 has not come to an end within 800 ms"));
  CHECK_THAT(verdict, Contains("rank 1: no engine: unsupported"));
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("a call that a rank does not make ends in a timeout with words; later ones give the cause") {
  FakeGroup group(2, 1s);
  CHECK(with_engines(group, [&](Rank& rank) -> Verdict {
          const Call call = rank.call(Collective::allreduce, Dtype::f32, 1024);
          if (rank.rank() == 1) {
            for (int i = 0; i < 20000 && group.failure().is_ok(); ++i) std::this_thread::sleep_for(1ms);
          } else {
            auto work = rank.start(call);
            if (!work) return work.status().to_string();
            // A wait of one's own ends alone.
            if ((*work)->wait(Clock::now()).code() != StatusCode::timeout || (*work)->is_complete())
              return "a wait ended the call";
            const Status status = (*work)->wait(soon());
            if (status.code() != StatusCode::timeout) return status.to_string();
            if (status.message().find("allreduce of 1024 f32") == std::string::npos) return status.message();
          }
          // The other rank's engine sees it as soon as it has something under way.
          auto later = rank.start(call);
          const Status status = later ? (*later)->wait(soon()) : later.status();
          if (status.code() != StatusCode::timeout) return "later: " + status.to_string();
          later = rank.start(call);
          return later ? "started after a failure" : "";
        }) == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("what is before a call on its stream takes the time it takes") {
  FakeGroup group(1, 300ms);
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          cuda_stand_in_hang(0, true);
          auto work = rank.start(rank.call(Collective::allreduce, Dtype::f32, 8));
          std::this_thread::sleep_for(700ms);
          const bool is_complete = !work || (*work)->test();
          cuda_stand_in_hang(0, false);
          if (is_complete) return "ended before the stream came to it";
          return (*work)->wait(soon()).message();
        }) == "");
}

TEST_CASE("an error that NCCL reports while nobody calls ends what is under way, with NCCL's words") {
  FakeGroup group(2, 20s);
  const Verdict verdict = with_engines(group, [](Rank& rank) -> Verdict {
    if (rank.rank() == 1) {
      for (int i = 0; i < 20000 && rank.services.failure().is_ok(); ++i) std::this_thread::sleep_for(1ms);
      return rank.services.failure().is_ok() ? "the group has not failed" : "";
    }
    auto work = rank.start(rank.call(Collective::barrier, Dtype::u8, 0));
    if (!work) return work.status().to_string();
    std::promise<Status> told;
    (*work)->when_complete([&told](const Status& status) { told.set_value(status); });
    nccl_stand_in_break(ncclRemoteError, "connection to 10.0.0.7 was lost");
    const Status status = told.get_future().get();
    if (status.code() != StatusCode::peer_failed) return status.to_string();
    return status.message().find("connection to 10.0.0.7 was lost") != std::string::npos ? ""
                                                                                         : status.message();
  });
  nccl_stand_in_break(ncclSuccess, "");
  CHECK(verdict == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("a call that NCCL refuses on one rank fails the group, so that nobody waits for it") {
  FakeGroup group(2, 20s);
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          if (rank.rank() == 0) nccl_stand_in_fail("ncclAllReduce", ncclInternalError);
          std::uint8_t byte = 0;
          std::array<std::uint8_t, 2> all{};
          if (!rank.services.allgather(&byte, all.data(), 1)) return "allgather";
          auto work = rank.start(rank.call(Collective::allreduce, Dtype::f32, 3));
          const Status status = work ? (*work)->wait(soon()) : work.status();
          return status.message().find("ncclAllReduce failed: internal error") != std::string::npos
                     ? ""
                     : status.to_string();
        }) == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("when the group fails for another reason, what is under way ends with that") {
  FakeGroup group(2, 20s);
  CHECK(with_engines(group, [&group](Rank& rank) -> Verdict {
          if (rank.rank() == 1) {
            group.fail(Status(StatusCode::peer_failed, "rank 1 was killed", 1));
            return {};
          }
          auto work = rank.start(rank.call(Collective::allreduce, Dtype::f32, 3));
          const Status status = work ? (*work)->wait(soon()) : work.status();
          return status.message() == "rank 1 was killed" && status.peer() == 1 ? "" : status.to_string();
        }) == "");
}

TEST_CASE("a work outlives its engine, complete") {
  FakeGroup group(2, 20s);
  CHECK(with_engines(group, [](Rank& rank) -> Verdict {
          auto work = rank.start(rank.call(Collective::allreduce, Dtype::f32, 3));
          if (!work) return work.status().to_string();
          rank.engine.reset();
          return (*work)->is_complete() ? (*work)->status().message() : "not complete";
        }) == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("a group is split by NCCL once what is under way is complete") {
  FakeGroup world(4, 20s), even(2, 20s);
  CHECK(with_engines(world, [&](Rank& rank) -> Verdict {
          // Ranks 0 and 2, the other way round; 1 and 3 take no part.
          const bool is_even = rank.rank() % 2 == 0;
          FakeServices of_even(even, 1 - rank.rank() / 2);
          // Held up for a while by rank 0's device.
          std::future<void> release;
          if (rank.rank() == 0) {
            cuda_stand_in_hang(0, true);
            release = std::async(std::launch::async, [] {
              std::this_thread::sleep_for(100ms);
              cuda_stand_in_hang(0, false);
            });
          }
          auto before = rank.start(rank.call(Collective::allreduce, Dtype::u32, 1));
          if (!before) return before.status().to_string();
          auto pair = rank.engine->split(of_even, is_even ? 5 : -1, static_cast<int>(4 - rank.rank()));
          if (!pair) return pair.status().to_string();
          if (!(*before)->is_complete()) return "split while a call was under way";
          if ((*pair != nullptr) != is_even) return "in the wrong group";
          *reinterpret_cast<std::uint32_t*>(rank.input.data()) = 1U << rank.rank();
          const auto sum_by = [&](cuda::DeviceEngine& engine) -> std::uint32_t {
            auto work = start_by(engine, rank.call(Collective::allreduce, Dtype::u32, 1));
            if (!work || !(*work)->wait(soon())) return 0;
            return *reinterpret_cast<const std::uint32_t*>(rank.output.data());
          };
          if (is_even) {
            if (const std::uint32_t sum = sum_by(**pair); sum != 5) return fmt::format("of two: {}", sum);
          }
          const std::uint32_t sum = sum_by(*rank.engine);
          return sum == 15 ? "" : fmt::format("of four: {}", sum);
        }) == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("a split that one rank cannot make fails on all, and so does their group") {
  FakeGroup world(3, 2s), parts(3, 2s);
  nccl_stand_in_fail("ncclCommSplit", ncclSystemError);
  CHECK(with_engines(world, [&](Rank& rank) -> Verdict {
          FakeServices of_part(parts, rank.rank());
          auto part = rank.engine->split(of_part, 0, static_cast<int>(rank.rank()));
          if (part) return "split";
          if (part.status().message().find("ncclCommSplit failed") == std::string::npos)
            return part.status().to_string();
          return rank.services.failure() ? "the group works" : "";
        }) == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("buffers are registered as long as asked for, and not with an NCCL that cannot") {
  const bool is_able = (*nccl::library())->register_memory != nullptr;
  FakeGroup group(1, 20s);
  CHECK(with_engines(group, [&](Rank& rank) -> Verdict {
          auto one = rank.engine->register_buffer(rank.input.data(), kBufferBytes);
          auto two = rank.engine->register_buffer(rank.output.data(), kBufferBytes);
          if (!one || !two) return "not registered";
          if ((*one != nullptr) != is_able || nccl_stand_in_registered() != (is_able ? 2 : 0))
            return "registered otherwise";
          one->reset();
          if (nccl_stand_in_registered() != (is_able ? 1 : 0)) return "not deregistered";
          nccl_stand_in_fail("ncclCommRegister", ncclInvalidUsage);
          if (is_able) {
            const Status refused = rank.engine->register_buffer(rank.input.data(), 8).status();
            if (refused.message().find("ncclCommRegister failed") == std::string::npos)
              return "refused by: " + refused.to_string();
          }
          rank.services.fail(Status(StatusCode::aborted, "enough"));
          auto call = rank.start(rank.call(Collective::allreduce, Dtype::u32, 1));
          if (call) static_cast<void>((*call)->wait(soon()));
          two->reset();  // with a communicator that may be gone
          return "";
        }) == "");
  CHECK(nccl_stand_in_registered() == 0);
}

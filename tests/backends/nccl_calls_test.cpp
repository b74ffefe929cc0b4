// Calls on device memory through the public interface where NCCL is there: what it carries, what is staged
// beside it, and what the rules say of both. Ranks are threads with a device each; NCCL and the driver are
// the stand-ins.
#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/engine_prices.hpp"
#include "backends/cuda/stream_event.hpp"
#include "backends/nccl/mapping.hpp"
#include "tests/backends/nccl_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"
#include "tutti/tutti.hpp"

namespace {

using namespace tutti;

using Catch::Matchers::Contains;

const bool is_named = test::use_stand_ins(CUDA_STAND_IN_FILE, NCCL_STAND_IN_FILE);

// A rank's numbers in the memory of a device, a stream there, and sums of them.
class OnDevice {
 public:
  explicit OnDevice(int device)
      : context_(cuda::ContextScope::enter(device)),
        stream_(cuda::Stream::create(device)),
        memory_(device, kLong * 4) {}

  static constexpr std::size_t kShort = 5000;  // numbers that kernels carry for less than NCCL by price
  static constexpr std::size_t kLong = 100000;

  // "" if the sum over the group of rank + 1 comes out, else what was said or found.
  std::string add_up(const CommGroup& group, const std::string& algorithm, std::size_t count = kLong,
                     Op op = Op::sum) {
    std::vector<std::int32_t> numbers(count, group.rank() + 1);
    static_cast<void>(cuda::copy_async(memory_.data(), numbers.data(), count * 4, stream_->get()));
    CallOptions options;
    options.cuda_stream = stream_->get();
    options.algorithm = algorithm;
    const std::string error =
        error_of([&] { group.allreduce(memory_.data(), memory_.data(), count, Dtype::i32, op, options); });
    if (!error.empty()) return error;
    static_cast<void>(cuda::copy_async(numbers.data(), memory_.data(), count * 4, stream_->get()));
    (*cuda::driver())->cuStreamSynchronize(stream_->get());
    const std::int32_t wanted = op == Op::bor ? 3 : group.size() * (group.size() + 1) / 2;
    return numbers == std::vector<std::int32_t>(count, wanted) ? "" : "wrong sums";
  }

 private:
  Result<cuda::ContextScope> context_;
  Result<cuda::Stream> stream_;
  test::DeviceMemory memory_;
};

unsigned long nccl_calls() { return nccl_stand_in_calls("ncclAllReduce"); }
unsigned long launches() { return cuda_stand_in_calls("cuLaunchKernel"); }

}  // namespace

TEST_CASE("NCCL carries what it can, others what it cannot, and rules and arguments name either") {
  REQUIRE(is_named);
  const unsigned long before = nccl_calls();
  const Variables variables{{"TUTTI_ADJUST_ALLREDUCE", "auto:-100;staged:8k-19k;auto"}};
  const Verdict verdict = with_ranks(2, [](CommGroup& group) -> Verdict {
    OnDevice mine(group.rank());
    if (const std::string said = mine.add_up(group, ""); !said.empty()) return "auto: " + said;
    for (const std::size_t count : {OnDevice::kShort, OnDevice::kLong}) {
      if (const std::string said = mine.add_up(group, "nccl", count); !said.empty()) return "nccl: " + said;
    }
    if (const std::string said = mine.add_up(group, "", OnDevice::kLong, Op::bor); !said.empty())
      return "bor: " + said;
    const std::string refused = mine.add_up(group, "nccl", OnDevice::kLong, Op::bor);
    if (refused.find("NCCL has no operation bor") > refused.size()) return "nccl, bor: " + refused;
    if (const std::string said = mine.add_up(group, "ring"); !said.empty()) return "ring: " + said;
    return "";
  });
  CHECK(verdict == "");
  CHECK(nccl_calls() == before + 6);  // of two ranks: auto and twice nccl
}

TEST_CASE("where nobody is named, kernels carry short sums and NCCL long ones") {
  const Verdict verdict = with_ranks(2, [](CommGroup& group) -> Verdict {
    OnDevice mine(group.rank());
    const auto add_up = [&](std::size_t count) -> std::string {
      const std::string said = mine.add_up(group, "", count);
      group.barrier();
      return said;
    };
    const unsigned long nccl = nccl_calls(), kernels = launches();
    group.barrier();
    if (const std::string said = add_up(OnDevice::kShort); !said.empty()) return said;
    if (nccl_calls() != nccl || launches() != kernels + 2) return "the short one went otherwise";
    group.barrier();
    if (const std::string said = add_up(OnDevice::kLong); !said.empty()) return said;
    return nccl_calls() == nccl + 2 && launches() == kernels + 2 ? "" : "the long one went otherwise";
  });
  CHECK(verdict == "");
}

TEST_CASE("what the choice takes NCCL to carry is what its backend carries") {
  constexpr int kNewest = 22900;
  for (int d = 0; d < kDtypeCount; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    INFO(to_string(dtype));
    CHECK(nccl_reduces(dtype) == nccl::reduced_type(dtype, kNewest).is_ok());
  }
  for (const Collective collective :
       {Collective::allreduce, Collective::reduce_scatter, Collective::allgather, Collective::broadcast,
        Collective::reduce, Collective::gather, Collective::scatter, Collective::alltoall, Collective::scan,
        Collective::exscan}) {
    Question question;
    question.collective = collective;
    question.size = 2;
    Call call;
    call.collective = collective;
    bool is_refused = false;
    for (const EngineOffer& offer : engine_offers(question, {1, 2}, device_model(GpuLink::nvlink)))
      is_refused = is_refused || (offer.kind == DeviceEngineKind::nccl && !offer.refusal.empty());
    INFO(to_string(collective));
    CHECK(is_refused != nccl::check_call(call, 0, 2, kNewest).is_ok());
  }
}

TEST_CASE("two ranks on one GPU, which NCCL refuses, are carried otherwise unless NCCL is named") {
  const unsigned long before = nccl_calls();
  const Verdict verdict = with_ranks(2, [](CommGroup& group) -> Verdict {
    OnDevice mine(0);
    if (const std::string said = mine.add_up(group, ""); !said.empty()) return "auto: " + said;
    const std::string refused = mine.add_up(group, "nccl");
    if (refused.find("nccl by argument") > refused.size()) return "nccl: " + refused;
    return mine.add_up(group, "staged");
  });
  CHECK(verdict == "");
  CHECK(nccl_calls() == before);
}

TEST_CASE("groups that are split off go by communicators split off, if their calls stay on the same GPUs") {
  const auto made = [] { return nccl_stand_in_calls("ncclCommInitRankConfig"); };
  const unsigned long before = made();
  const Verdict verdict = with_ranks(4, [&](CommGroup& group) -> Verdict {
    OnDevice mine(group.rank() % 4);
    if (const std::string said = mine.add_up(group, "nccl"); !said.empty()) return "whole: " + said;
    const CommGroup part = group.split(group.rank() == 3 ? -1 : group.rank() % 2, -group.rank());
    if (part.is_open()) {
      if (const std::string said = mine.add_up(part, "nccl"); !said.empty()) return "part: " + said;
      // Of the part, without a call of its own between.
      const CommGroup whole = part.split(0).split(0);
      if (const std::string said = mine.add_up(whole, "nccl"); !said.empty()) return "part of it: " + said;
    }
    group.barrier();
    if (made() != before + 4) return "communicators were made anew";
    group.barrier();
    // Rank 0 goes to another GPU with this one.
    const CommGroup moved = group.split(group.rank() < 2 ? 0 : -1);
    if (!moved.is_open()) return {};
    OnDevice elsewhere(group.rank() == 0 ? 3 : 1);
    if (const std::string said = elsewhere.add_up(moved, "nccl"); !said.empty()) return "moved: " + said;
    moved.barrier();
    return made() == before + 6 ? "" : "a communicator of other GPUs was used";
  });
  CHECK(verdict == "");
  CHECK(nccl_stand_in_alive() == 0);
}

TEST_CASE("buffers are registered with the group that is told of them, before or after its first call") {
  const Verdict verdict = with_ranks(2, [](CommGroup& group) -> Verdict {
    OnDevice mine(group.rank());
    const test::DeviceMemory early(group.rank(), 4096), late(group.rank(), 4096), wrong(2, 4096);
    RegisteredBuffer first = group.register_buffer(early.data(), 4096);
    const auto registered = [&](long wanted) {
      group.barrier();
      const bool is_so = nccl_stand_in_registered() == wanted;
      group.barrier();
      return is_so;
    };
    if (!registered(0)) return "registered with nobody";
    if (const std::string said = mine.add_up(group, "nccl"); !said.empty()) return said;
    if (!registered(2)) return "the early ones are not registered";
    RegisteredBuffer second = group.register_buffer(late.data(), 4096);
    if (!registered(4)) return "the late ones are not registered";
    first.release();
    if (!registered(2) || first.is_registered()) return "not released";
    for (const void* memory : {static_cast<const void*>(&mine), static_cast<const void*>(wrong.data())}) {
      const std::string refused = error_of([&] { group.register_buffer(memory, 64); });
      if (refused.find("register_buffer: memory: ") != 0) return "not refused: " + refused;
    }
    if (const std::string said = mine.add_up(group, "nccl"); !said.empty()) return said;
    if (!registered(2)) return "registered otherwise";
    group = CommGroup();  // which what is left outlives
    second.release();
    return "";
  });
  CHECK(verdict == "");
  CHECK(nccl_stand_in_registered() == 0);
  CHECK(nccl_stand_in_alive() == 0);
}

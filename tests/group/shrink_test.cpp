// Shrinking of groups whose ranks are threads: members that are left out or have left, and mistakes in calls.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"

using namespace tutti;

namespace {

Verdict check_sum(const CommGroup& group, int expected_size) {
  if (group.size() != expected_size) return "size " + std::to_string(group.size());
  std::vector<int> data(1000, group.rank() + 1);
  group.allreduce(std::span(data));
  const int expected = expected_size * (expected_size + 1) / 2;
  return data[999] == expected ? "" : "sum " + std::to_string(data[999]);
}

}  // namespace

TEST_CASE("members that are left out stay behind, and the others are numbered in order") {
  CHECK(with_ranks(4, [](CommGroup& world) -> Verdict {
          const int left_out[] = {1};
          if (world.rank() == 1) return "";
          const int expected_rank = world.rank() == 0 ? 0 : world.rank() - 1;
          const CommGroup rest = world.shrink(left_out);
          if (rest.rank() != expected_rank) return "rank " + std::to_string(rest.rank());
          if (Verdict verdict = check_sum(rest, 3); !verdict.empty()) return verdict;
          const std::string old = error_of([&] { world.barrier(); });
          return old.find("successor") == std::string::npos ? "the old group says " + old : "";
        }) == "");
}

TEST_CASE("a group shrinks again and again, down to one") {
  CHECK(with_ranks(4, [](CommGroup& world) -> Verdict {
          CommGroup group = world;
          std::vector<int> ids = {0, 1, 2, 3};
          while (group.size() > 1) {
            const int left_out[] = {0};  // the leader of the agreement before
            if (group.member_ids() != ids) return "other members";
            if (group.rank() == 0) return "";
            ids.erase(ids.begin());
            group = group.shrink(left_out);
            const int size = group.size();
            if (Verdict verdict = check_sum(group, size); !verdict.empty()) return verdict;
          }
          return check_sum(group.shrink(), 1);
        }) == "");
}

TEST_CASE("a part of the world shrinks alone, and its world goes on") {
  CHECK(with_ranks(4, [](CommGroup& world) -> Verdict {
          CommGroup part = world.split(world.rank() % 2);
          if (world.rank() == 3) {
            part = {};
          } else {
            const int left_out[] = {1};
            part = world.rank() == 1 ? part.shrink(left_out) : part.shrink();
            if (Verdict verdict = check_sum(part, world.rank() == 1 ? 1 : 2); !verdict.empty())
              return verdict;
          }
          return check_sum(world, 4);
        }) == "");
}

TEST_CASE("a member that is alive and does not call shrink is named, and the others can call again") {
  std::atomic<int> failed{0};
  CHECK(with_ranks(
            3,
            [&](CommGroup& world) -> Verdict {
              if (world.rank() == 1) {
                for (int i = 0; i < 2000 && failed.load() < 2; ++i)
                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
              } else {
                const std::string error = error_of([&] { world.shrink(); });
                ++failed;
                if (error.find("not called in time by rank 1 of 3") == std::string::npos)
                  return "threw " + error;
              }
              return check_sum(world.shrink(), 3);
            },
            std::chrono::seconds(1)) == "");
}

TEST_CASE("a rank that the others have left out is told so") {
  std::atomic<bool> is_left{false};
  CHECK(with_ranks(3, [&](CommGroup& world) -> Verdict {
          if (world.rank() == 2) {
            const std::string error = error_of([&] { world.shrink(); });
            is_left = true;
            return error.find("go on without") == std::string::npos ? "threw " + error : "";
          }
          const int left_out[] = {2};
          // Rank 2 must come while the others agree.
          if (world.rank() == 1 && !becomes_true(is_left)) return "rank 2 was not refused";
          return check_sum(world.shrink(left_out), 2);
        }) == "");
}

TEST_CASE("shrink refuses ranks that are none") {
  CHECK(with_ranks(1, [](CommGroup& world) -> Verdict {
          const int none[] = {1}, own[] = {0};
          const std::string first = error_of([&] { world.shrink(none); });
          const std::string second = error_of([&] { world.shrink(own); });
          if (first.find("1 is no rank of the group") == std::string::npos) return first;
          return second.find("this rank, 0, is listed") == std::string::npos ? second : "";
        }) == "");
}

TEST_CASE("a process joins a group that grows, and another one while a member is left out") {
  std::promise<std::string> first, second;
  const auto joiner = [](std::promise<std::string>& told, bool changes_again) {
    return std::async(std::launch::async, [&told, changes_again]() -> Verdict {
      try {
        const CommGroup group = tutti::join(told.get_future().get(), std::chrono::seconds(20));
        if (group.rank() != 2) return "rank " + std::to_string(group.rank());
        if (Verdict verdict = check_sum(group, 3); !verdict.empty()) return verdict;
        return changes_again ? check_sum(group.reconfigure(3, std::array{1}), 3) : "";
      } catch (const Error& error) {
        return std::string("threw ") + error.what();
      }
    });
  };
  auto one = joiner(first, true), two = joiner(second, false);
  CHECK(with_ranks(2, [&](CommGroup& world) -> Verdict {
          if (world.rank() == 0) first.set_value(world.invitation());
          CommGroup grown = world.grow(3);
          if (Verdict verdict = check_sum(grown, 3); !verdict.empty()) return verdict;
          if (world.rank() == 1) return "";
          second.set_value(grown.invitation());
          const CommGroup last = grown.reconfigure(3, std::array{1});
          if (last.member_ids() != std::vector{0, 2, 3}) return "other members";
          return check_sum(last, 3);
        }) == "");
  CHECK(one.get() == "");
  CHECK(two.get() == "");
}

TEST_CASE("a process that joins with another TUTTI_WIRE_SECURITY is refused before it sends anything") {
  InitOptions options;
  options.unique_id = make_unique_id();
  options.rank = 0;
  options.size = 1;
  const std::string invitation = init(options).invitation();
  ::setenv("TUTTI_WIRE_SECURITY", "encrypt", 1);
  const std::string text = error_of([&] { tutti::join(invitation); });
  ::unsetenv("TUTTI_WIRE_SECURITY");
  INFO(text);
  CHECK(text.find("'encrypt' in this process and 'off' in the group") != std::string::npos);
}

TEST_CASE("grow refuses sizes that are none, and join texts that are no invitation") {
  CHECK(with_ranks(2, [](CommGroup& world) -> Verdict {
          const std::string small = error_of([&] { world.grow(1); });
          if (small.find("expected at least 2") == std::string::npos) return small;
          const std::string text = error_of([] { tutti::join("tutti-join-0g"); });
          return text.find("not a text that") == std::string::npos ? text : "";
        }) == "");
}

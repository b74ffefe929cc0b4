// A record as its rank writes it and as others read it.
#include "runtime/record/reading.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/record/folder.hpp"
#include "runtime/record/rank_file.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace tutti::record;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "record_test.XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

RankFile::Description rank_of(int rank, int size) {
  RankFile::Description description;
  description.rank = rank;
  description.size = size;
  description.host = "here";
  description.job = "run:1/x";
  description.world = "abc";
  return description;
}

SteadyClock::time_point at(std::uint64_t nanoseconds) {
  return SteadyClock::time_point(std::chrono::nanoseconds(nanoseconds));
}

void complete(GroupRecord& group, std::uint64_t number) {
  group.add_operation({number, number * 7, 3, 4, {Phase::moving, false, 0, kNoPeer}});
  OperationRecord operation;
  operation.begin(group, group.operation(number), number, 0, at(100), at(200));
  operation.end(false, 16);
}

}  // namespace

TEST_CASE("a record tells what an operation does, step by step") {
  const TemporaryFolder folder;
  auto opened = RankFile::open(folder / "own", rank_of(1, 3));
  REQUIRE(opened.status().is_ok());
  RankFile& file = **opened;
  CHECK(file.path().ends_with("/run_1_x.abc.1.record"));
  const auto group = file.add_group({99, 1, 3, 0});
  const auto last = [&] { return read_record(file.path())->groups.at(0).operations.back(); };
  const std::uint16_t row = group->row_of(2, 4096, "ring", "tcp");
  CHECK(row == 1);
  CHECK(group->row_of(2, 8191, "ring", "tcp") == row);
  CHECK(group->row_of(2, 8192, "ring", "tcp") != row);
  group->add_operation({1, 5, 2, 1024, {Phase::queued, false, row}});
  CHECK(last().state.phase == Phase::queued);
  CHECK(last().times.submitted == 0);
  OperationRecord operation;
  operation.begin(*group, group->operation(1), 1, row, at(1000), at(2000));
  CHECK(last().state.phase == Phase::moving);
  CHECK(last().times.entered == 2000);
  operation.block(2, true);
  CHECK(last().state.phase == Phase::waiting);
  CHECK(last().state.peer == 2);
  CHECK(last().times.waiting_since > 0);
  operation.block(0, false);
  CHECK(last().state.phase == Phase::moving);
  CHECK(last().state.peer == 0);
  CHECK(last().times.waiting_since == 0);
  CHECK(last().times.waited > 0);
  operation.end(false, 4096);
  const auto rank = read_record(file.path());
  REQUIRE(rank.status().is_ok());
  CHECK(rank->rank == 1);
  CHECK(rank->host == "here");
  CHECK(rank->pid == ::getpid());
  const RecordedGroup& read = rank->groups.at(0);
  CHECK((read.context == 99 && read.rank == 1 && read.size == 3 && read.is_open && read.failure.empty()));
  CHECK(read.operations.back().state.has_waited);
  CHECK(read.operations.back().digest == 5);
  CHECK(read.operations.back().count == 1024);
  REQUIRE(read.rows.size() == 2);
  CHECK((read.rows[1].algorithm == "ring" && read.rows[1].transport == "tcp" &&
         read.rows[1].least_bytes == 4096));
  CHECK((read.rows[1].calls == 1 && read.rows[1].bytes == 4096 && read.rows[1].timed_calls == 1));
  CHECK(read.rows[1].waited <= read.operations.back().times.ended - 1000);
}

TEST_CASE("what failed while it waited, and is not recorded the next time, waits no longer") {
  GroupRecord group({99, 0, 2, 0});
  group.add_operation({1, 5, 2, 1, {Phase::queued, false, 0}});
  OperationRecord operation;
  operation.begin(group, group.operation(1), 1, 0, at(1000), at(2000));
  operation.block(1, true);
  operation.end(true, 4);
  operation.forget();
  operation.go_on();
  CHECK(get(group.operation(1).times.waiting_since) > 0);
}

TEST_CASE("a record keeps the last operations, also of what is still under way") {
  GroupRecord group({1, 0, 2, 0});
  OperationRecord first;
  group.add_operation({1, 0, 0, 0, {}});
  first.begin(group, group.operation(1), 1, 0, at(1), at(1));
  for (std::uint64_t number = 2; number <= kOperations + 1; ++number) complete(group, number);
  // The entry is another's now.
  first.block(1, true);
  first.end(true, 0);
  CHECK(State::of(get(group.operation(1).call.state)).phase == Phase::complete);
  CHECK(get(group.operation(1).call.sequence) == kOperations + 1);
}

TEST_CASE("the last completed call of each open group is found without reading all others") {
  const TemporaryFolder folder;
  auto opened = RankFile::open(folder / "own", rank_of(1, 3));
  REQUIRE(opened.status().is_ok());
  const auto first = (*opened)->add_group({7, 0, 3, 0}), second = (*opened)->add_group({8, 0, 3, 0});
  const auto last = [&] { return *(*opened)->read_last_calls(1); };
  CHECK(last().empty());
  complete(*second, 1);
  for (std::uint64_t number = 1; number < 3 * kOperations; ++number) {
    complete(*first, number);
    if (last().size() != 2 || last()[0].sequence != number) FAIL("after call " << number);
  }
  CHECK(last()[0].context == 7);
  CHECK(last()[1].sequence == 1);
  first->add_operation({3 * kOperations, 1, 3, 4, {Phase::queued, false, 0, kNoPeer}});
  CHECK(last()[0].sequence == 3 * kOperations - 1);
}

TEST_CASE("a file is its user's alone, and goes with a clean end only") {
  const TemporaryFolder folder;
  std::string path;
  {
    auto file = RankFile::open(folder / "own", rank_of(0, 1));
    REQUIRE(file.status().is_ok());
    path = (*file)->path();
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777U) == 0600U);
  }
  CHECK(!std::filesystem::exists(path));
  {
    auto file = RankFile::open(folder / "own", rank_of(0, 1));
    (*file)->keep();
  }
  CHECK(std::filesystem::exists(path));
  CHECK(!is_owner_alive(path));
  std::filesystem::permissions(folder / "own", std::filesystem::perms::all);
  const auto refused = RankFile::open(folder / "own", rank_of(0, 1));
  CHECK(refused.status().message().find("is not a folder that this user alone may write to") !=
        std::string::npos);
  std::filesystem::create_symlink(folder / "own", folder / "link");
  CHECK(!RankFile::open(folder / "link", rank_of(0, 1)).status().is_ok());
}

TEST_CASE("where a file may not grow, a group records in memory") {
  const TemporaryFolder folder;
  auto file = RankFile::open(folder / "own", rank_of(0, 1));
  REQUIRE(file.status().is_ok());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = sizeof(FileHead);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  const auto group = (*file)->add_group({7, 0, 1, 0});
  const auto other = RankFile::open(folder / "other", rank_of(0, 1));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  complete(*group, 1);
  CHECK(get(group->operation(1).call.sequence) == 1);
  CHECK(read_record((*file)->path())->groups.empty());
  CHECK(other.status().is_ok());
}

TEST_CASE("sections of closed groups are used again") {
  const TemporaryFolder folder;
  auto file = RankFile::open(folder / "own", rank_of(0, 1));
  REQUIRE(file.status().is_ok());
  for (std::uint64_t context = 1; context <= 3; ++context) {
    const auto group = (*file)->add_group({context, 0, 1, 0});
    complete(*group, 1);
  }
  const auto open = (*file)->add_group({7, 0, 1, 0});
  const auto rank = read_record((*file)->path());
  REQUIRE(rank->groups.size() == 1);
  CHECK(rank->groups[0].context == 7);
  CHECK(rank->groups[0].operations.empty());
  // Counters of a process never decrease.
  CHECK(rank->groups[0].rows.at(0).calls == 3);
}

TEST_CASE("the section of a group that has failed is kept") {
  const TemporaryFolder folder;
  auto file = RankFile::open(folder / "own", rank_of(0, 1));
  REQUIRE(file.status().is_ok());
  (*file)->add_group({1, 0, 1, 0})->note_failure("rank 1\x1b[2J is gone");
  const auto open = (*file)->add_group({2, 0, 1, 0});
  const auto rank = read_record((*file)->path());
  REQUIRE(rank->groups.size() == 2);
  CHECK(rank->groups[0].failure == "rank 1?[2J is gone");
}

TEST_CASE("buckets of times are contiguous, and quantiles lie within them") {
  for (std::uint32_t bucket = 1; bucket < kBuckets; ++bucket) {
    CHECK(bucket_of(bucket_start(bucket)) == bucket);
    CHECK(bucket_of(bucket_start(bucket) - 1) == bucket - 1);
  }
  GroupRecord group({1, 0, 2, 0});
  const std::uint16_t row = group.row_of(0, 4, "one_shot", "shm");
  for (std::uint64_t i = 0; i < 99; ++i) group.count_times(row, 1000, 400);
  group.count_times(row, 5000000, 0);
  RecordedRow read;
  read.times.resize(kBuckets);
  for (std::uint32_t i = 0; i < kBuckets; ++i) read.times[i] = group.section().rows[row].times[i].load();
  CHECK(bucket_of(read.quantile(0.5)) == bucket_of(1000));
  CHECK(bucket_of(read.quantile(1.0) - 1) == bucket_of(5000000));
  CHECK(get(group.section().rows[row].waited) == 99 * 400);
}

// Under ThreadSanitizer this shows that reader and writer share words only.
TEST_CASE("a reader sees whole entries while the rank writes") {
  const TemporaryFolder folder;
  auto file = RankFile::open(folder / "own", rank_of(0, 1));
  REQUIRE(file.status().is_ok());
  const auto group = (*file)->add_group({1, 0, 1, 0});
  std::atomic<bool> is_done{false};
  std::thread writer([&] {
    for (std::uint64_t number = 1; !is_done.load(); ++number) {
      complete(*group, number);
      if (number % 64 != 0) continue;
      // Groups that take the same section: the number of their call is that of the group.
      complete(*(*file)->add_group({number, 0, 1, 0}), number);
    }
  });
  std::size_t odd = 0, seen = 0;
  for (int i = 0; i < 50 || seen == 0; ++i) {
    const auto rank = read_record((*file)->path());
    for (std::size_t other = 1; other < rank->groups.size(); ++other) {
      for (const RecordedCall& call : rank->groups[other].operations)
        odd += call.sequence == rank->groups[other].context ? 0 : 1;
    }
    for (const RecordedCall& call : rank->groups.at(0).operations) {
      ++seen;
      const bool is_whole = call.digest == call.sequence * 7 && call.count == 4 &&
                            (call.times.submitted == 0 || call.times.submitted == 100);
      odd += is_whole ? 0 : 1;
    }
  }
  is_done = true;
  writer.join();
  CHECK(odd == 0);
}

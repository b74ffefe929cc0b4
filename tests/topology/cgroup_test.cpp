// CPU quotas and limits of memory from trees of files as Linux has them, in both versions of cgroups.
#include "topology/cgroup.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// A root folder that goes away with the test.
class Root {
 public:
  Root() {
    std::string name = (fs::temp_directory_path() / "tutti-cgroup-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Root() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  Root& with(const std::string& file, const std::string& text) {
    const fs::path path = path_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
    return *this;
  }
  std::uint32_t quota() const { return cgroup_limits(path_.string()).cpu_quota_milli; }
  std::uint64_t memory() const { return cgroup_limits(path_.string()).memory_bytes; }

 private:
  fs::path path_;
};

TEST_CASE("no files, no quota") { CHECK(Root().quota() == 0); }

TEST_CASE("version 2: the tightest of all levels") {
  Root root;
  root.with("proc/self/cgroup", "0::/user/job");
  CHECK(root.quota() == 0);
  root.with("sys/fs/cgroup/user/job/cpu.max", "max 100000");
  CHECK(root.quota() == 0);
  root.with("sys/fs/cgroup/user/cpu.max", "250000 100000");
  CHECK(root.quota() == 2500);
  root.with("sys/fs/cgroup/user/job/cpu.max", "50000 100000");
  CHECK(root.quota() == 500);
  root.with("sys/fs/cgroup/cpu.max", "10000 100000");
  CHECK(root.quota() == 100);
}

TEST_CASE("version 2 in a container, whose path is the host's") {
  Root root;
  root.with("proc/self/cgroup", "0::/../../docker/1234");
  root.with("sys/fs/cgroup/cpu.max", "400000 100000");
  CHECK(root.quota() == 4000);
}

TEST_CASE("version 1") {
  Root root;
  root.with("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a/b\n3:cpuset:/c");
  root.with("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1");
  root.with("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000");
  CHECK(root.quota() == 0);
  root.with("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000");
  root.with("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "50000");
  CHECK(root.quota() == 3000);
}

TEST_CASE("memory, in both versions") {
  Root second;
  second.with("proc/self/cgroup", "0::/user/job");
  CHECK(second.memory() == 0);
  second.with("sys/fs/cgroup/user/job/memory.max", "max").with("sys/fs/cgroup/user/memory.max", "8589934592");
  CHECK(second.memory() == 8589934592);
  second.with("sys/fs/cgroup/user/job/memory.max", "1073741824");
  CHECK(second.memory() == 1073741824);
  second.with("sys/fs/cgroup/memory.max", "-4096");
  CHECK(second.memory() == 1073741824);

  Root first;
  first.with("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n0::/");
  first.with("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  CHECK(first.memory() == 0);
  first.with("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4194304000");
  CHECK(first.memory() == 4194304000);
  CHECK(first.quota() == 0);
}

TEST_CASE("files that say nothing that can be used") {
  for (const char* text :
       {"", "soon", "100000", "0 100000", "100000 0", "-5 100000", "9223372036854775807 1"}) {
    INFO("'" << text << "'");
    Root root;
    root.with("proc/self/cgroup", "garbage\n0:/\n0::/job").with("sys/fs/cgroup/job/cpu.max", text);
    CHECK((root.quota() == 0 || root.quota() == 1000000000));
  }
}

}  // namespace
}  // namespace tutti

// Questions that ranks answer together.
#include "tools/cli/bench/job.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <set>

#include "runtime/group/comm_group.hpp"
#include "tools/cli/arguments.hpp"

namespace tutti::tool {

int count_nodes(const CommGroup& group) {
  std::int64_t leaders = group.local_rank() == 0 ? 1 : 0;
  group.allreduce(std::span(&leaders, 1));
  return static_cast<int>(leaders);
}

int count_cpus(const CommGroup& group, const std::vector<int>& cpus) {
  std::array<std::uint64_t, 64> bits{};
  for (const int cpu : cpus) {
    if (cpu / 64 < static_cast<int>(bits.size())) bits[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  }
  group.split_by_node().allreduce(std::span<std::uint64_t>(bits), Op::bor);
  int count = 0;
  for (const std::uint64_t word : bits) count += std::popcount(word);
  return count;
}

std::optional<bench::SharedPage> open_page(const CommGroup& group) {
  std::optional<bench::SharedPage> page;
  std::array<std::int64_t, 2> page_address{};
  if (group.rank() == 0) {
    page.emplace(bench::SharedPage::create(group.size()));
    page_address = {::getpid(), page->fd()};
  }
  group.broadcast(std::span<std::int64_t>(page_address), 0);
  std::int64_t has_page = 1;
  try {
    if (!page)
      page.emplace(bench::SharedPage::open(static_cast<int>(page_address[0]),
                                           static_cast<int>(page_address[1]), group.rank(), group.size()));
  } catch (const std::system_error&) {
    has_page = 0;
  }
  group.allreduce(std::span(&has_page, 1), Op::min);  // also keeps rank 0's descriptor open until all have it
  if (has_page == 0) return std::nullopt;
  return page;
}

std::string transports_of(const CommGroup& group) {
  const CommGroup::Impl& impl = CommGroup::Impl::of(group, "bench");
  std::set<std::string> names;
  for (const int rank : impl.world_ranks()) {
    const std::string& name = impl.world().paths()[static_cast<std::size_t>(rank)].transport;
    if (!name.empty()) names.insert(name);
  }
  return names.empty() ? "self" : joined(names, "+");
}

}  // namespace tutti::tool

// Executes on all ranks of a job the measurements that rank 0 asks for: one group for each set of rules, one
// pair of buffers for each size. Knows no candidate and no budget.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bench/harness/shared_page.hpp"
#include "tools/cli/bench/tutti_library.hpp"
#include "tools/cli/tune/campaign.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// Rank 0 uses it as a course; all others serve() until it stops them. So that all decisions are rank 0's,
// whatever clocks and arithmetic the others have.
class Field final : public Course {
 public:
  Field(const CommGroup& world, std::optional<bench::SharedPage> page, bench::Mode mode);
  ~Field() override;
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  std::optional<double> time(Collective collective, std::uint64_t bytes, const std::string& rules,
                             double seconds) override;
  double now() override;

  void stop();   // rank 0, at the end
  void serve();  // the others

 private:
  struct Command;
  struct Lane;
  std::optional<double> run(const Command& command);
  Lane* find_lane(const Command& command);

  const CommGroup& world_;
  std::optional<bench::SharedPage> page_;
  GroupRendezvous over_group_;
  bench::Mode mode_;
  // Of the collective and size under way.
  Collective collective_ = Collective::barrier;
  std::uint64_t bytes_ = 0;
  bench::Request request_;
  std::optional<bench::CallBuffers> buffers_;
  std::map<std::string, std::unique_ptr<Lane>> lanes_;  // by rules; of one collective
};

}  // namespace tutti::tool

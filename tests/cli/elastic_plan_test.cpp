// The rules of elastic jobs, on a clock of its own.
#include "tools/cli/run/elastic_plan.hpp"

#include "tests/support/catch.hpp"

using namespace tutti;
using Catch::Matchers::Contains;
using Places = std::vector<ElasticPlace>;

namespace {

struct Job {
  explicit Job(const ElasticLimits& limits, std::vector<HostSlots> placed = {{"one", 2}, {"two", 2}})
      : plan(limits, placed, placed) {
    plan.note_invitation();
  }
  ElasticPlan::Steps lose(ElasticPlace place) {
    plan.note_end(place, true, now);
    return plan.next(now);
  }
  void wait(int seconds) { now += std::chrono::seconds(seconds); }

  ElasticPlan plan;
  ElasticPlan::Clock::time_point now{};
};

ElasticLimits between(int least, int most) {
  ElasticLimits limits;
  limits.min_ranks = least;
  limits.max_ranks = most;
  return limits;
}

}  // namespace

TEST_CASE("a rank that is lost is replaced at its place") {
  Job job(between(2, 4));
  CHECK(job.plan.next(job.now).start.empty());
  const auto steps = job.lose({1, 0});
  CHECK((steps.start == Places{{1, 0}} && !steps.end && job.plan.rank_count() == 3));
  CHECK(job.plan.next(job.now).start.empty());
  job.plan.note_member({1, 0});
  CHECK(job.plan.rank_count() == 4);
}

TEST_CASE("without an invitation nobody can join, so the job ends below its bound") {
  ElasticPlan plan(between(2, 3), {{"one", 3}}, {{"one", 3}});
  plan.note_end({0, 0}, true, {});
  const auto first = plan.next({});
  CHECK((!first.end && first.start.empty()));
  plan.note_end({0, 2}, true, {});
  CHECK_THAT(plan.next({}).end.value_or(""), Contains("1 ranks are left, and --min-np is 2"));
}

TEST_CASE("a job that is too small waits for its new ranks, for a time") {
  Job job(between(4, 4));
  CHECK((!job.lose({0, 1}).end && job.plan.is_short()));
  job.wait(599);
  CHECK_FALSE(job.plan.next(job.now).end);
  job.wait(1);
  CHECK_THAT(job.plan.next(job.now).end.value_or(""), Contains("waited 600 s"));
  job.plan.note_member({0, 1});
  CHECK_FALSE(job.plan.next(job.now).end);
}

TEST_CASE("a host where a new rank fails gets no more of them, or after ever longer pauses") {
  for (const bool has_cooldown : {false, true}) {
    ElasticLimits limits = between(1, 4);
    if (has_cooldown) limits.cooldown = {10, 15};
    Job job(limits);
    CHECK(job.lose({0, 0}).start == Places{{0, 0}});
    CHECK(job.lose({0, 0}).start.empty());
    job.wait(10);
    CHECK(job.plan.next(job.now).start.size() == (has_cooldown ? 1 : 0));
    if (!has_cooldown) continue;
    CHECK(job.lose({0, 0}).start.empty());
    job.wait(14);
    CHECK(job.plan.next(job.now).start.empty());
    job.wait(1);
    CHECK(job.plan.next(job.now).start == Places{{0, 0}});
  }
}

TEST_CASE("a host that is lost takes its ranks along, and gets no more of them, or after a pause") {
  for (const bool has_cooldown : {false, true}) {
    ElasticLimits limits = between(1, 4);
    if (has_cooldown) limits.cooldown = {10, 15};
    Job job(limits);
    CHECK(job.plan.note_lost_host(1, job.now));
    CHECK((job.plan.next(job.now).start.empty() && job.plan.rank_count() == 2 && !job.plan.has_member(1)));
    CHECK_FALSE(job.plan.note_lost_host(1, job.now));
    job.wait(10);
    CHECK(job.plan.next(job.now).start == (has_cooldown ? Places{{1, 0}, {1, 1}} : Places{}));
  }
}

TEST_CASE("hosts come and go") {
  Job job(between(1, 6));
  job.plan.offer({{"two", 3}, {"three", 4}});
  const auto steps = job.plan.next(job.now);
  CHECK(steps.leave == Places{{0, 1}, {0, 0}});
  CHECK(steps.start ==
        Places{{1, 2}, {2, 0}});  // as many as there may be beside those that have not left yet
  CHECK_FALSE(job.plan.note_end({0, 1}, false, job.now));
  CHECK(job.plan.next(job.now).start == Places{{2, 1}});
  CHECK(job.plan.hosts() == std::vector<std::string>{"one", "two", "three"});
}

TEST_CASE("a job in which a rank has ended well takes no more") {
  Job job(between(1, 4));
  CHECK(job.lose({1, 1}).start == Places{{1, 1}});
  CHECK(job.plan.note_end({0, 0}, false, job.now));
  CHECK(job.plan.next(job.now).stop == Places{{1, 1}});
  CHECK_FALSE(job.plan.note_end({1, 1}, true, job.now));
  for (const ElasticPlace place : Places{{0, 1}, {1, 0}}) job.plan.note_end(place, false, job.now);
  const auto steps = job.plan.next(job.now);
  CHECK((!steps.end && steps.start.empty()));
}

TEST_CASE("a job whose ranks change too often ends, and so does one without ranks") {
  ElasticLimits limits = between(1, 2);
  limits.reset_limit = 1;
  Job job(limits, {{"one", 2}});
  CHECK_FALSE(job.lose({0, 1}).end);
  job.plan.note_member({0, 1});
  CHECK_THAT(job.lose({0, 1}).end.value_or(""), Contains("--reset-limit is 1"));
  Job all(between(1, 2), {{"one", 2}});
  all.plan.note_end({0, 0}, true, all.now);
  CHECK(all.lose({0, 1}).end == "no rank is left");
}

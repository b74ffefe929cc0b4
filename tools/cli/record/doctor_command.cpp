// `tutti doctor`: reads the records of all ranks of a job, and says which rank did something differently first.
#include <unistd.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/record/job_records.hpp"
#include "tools/cli/record/torch_export.hpp"
#include "tools/cli/record/verdict.hpp"

namespace tutti::tool {
namespace {

struct DoctorOptions {
  std::string what;
  std::string torch_folder;  // empty: no export
  bool is_json = false;
};

std::string describe_process(const record::RecordedRank& rank) {
  return fmt::format("pid {} on {}, {}", rank.pid, rank.host, rank.is_alive ? "runs" : "has ended");
}

void print_ranks(const JobRecords& job) {
  const std::vector<GroupView> groups = groups_of(job);
  for (const record::RecordedRank& rank : job.ranks) {
    fmt::print("  rank {} ({}):", rank.rank, describe_process(rank));
    const Underway at = operation_under_way(rank, groups);
    if (at.call != nullptr) {
      const bool has_peer = at.call->state.peer != record::kNoPeer;
      fmt::print(" in {}, number {} of {}{}\n", describe(*at.call), at.call->sequence, at.group->name,
                 has_peer ? fmt::format(", waits for rank {} of it", at.call->state.peer) : "");
      continue;
    }
    std::uint64_t calls = 0;
    for (const record::RecordedGroup& group : rank.groups)
      calls += group.operations.empty() ? 0 : group.operations.back().sequence;
    fmt::print(" in no operation, after {} calls\n", calls);
  }
  constexpr int kMostAbsent = 16;
  const int absent = job.size() - static_cast<int>(job.ranks.size());
  for (int rank = 0, said = 0; rank < job.size() && said < std::min(absent, kMostAbsent); ++rank) {
    if (job.find(rank) != nullptr) continue;
    fmt::print("  rank {}: no record here; it ended cleanly, or runs on another node\n", rank);
    ++said;
  }
  if (absent > kMostAbsent) fmt::print("  {} more ranks: likewise\n", absent - kMostAbsent);
  for (const record::RecordedRank& rank : job.ranks) {
    for (const record::RecordedGroup& group : rank.groups) {
      if (!group.failure.empty()) fmt::print("  rank {} says: {}\n", rank.rank, group.failure);
    }
  }
  for (const std::string& reason : job.unreadable) fmt::print("  left out: {}\n", reason);
}

Json to_json(const JobRecords& job, const JobVerdict& verdict) {
  Json ranks = Json::array();
  const std::vector<GroupView> groups = groups_of(job);
  for (const record::RecordedRank& rank : job.ranks) {
    Json entry = {{"rank", rank.rank},      {"pid", rank.pid},      {"host", rank.host},
                  {"alive", rank.is_alive}, {"operation", nullptr}, {"record", rank.path}};
    if (const Underway at = operation_under_way(rank, groups); at.call != nullptr)
      entry["operation"] = {
          {"call", describe(*at.call)}, {"number", at.call->sequence}, {"group", at.group->name}};
    ranks.push_back(std::move(entry));
  }
  return {{"job", job.job},
          {"world", job.world},
          {"size", job.size()},
          {"verdict", to_string(verdict.kind)},
          {"culprits", verdict.culprits},
          {"sentence", verdict.sentence},
          {"ranks", ranks}};
}

}  // namespace

int doctor_command(int argc, char** argv) {
  DoctorOptions options;
  ArgumentParser app(
      "Reads the last operations that the ranks of a job have recorded, and says which rank did something "
      "differently first. Works while the job runs or hangs, and after kill -9. Ends with status 3 if there "
      "is a difference.",
      "tutti doctor");
  app.footer(
      "Examples:\n"
      "  tutti doctor                   the job that runs here, else the last one that did not end cleanly\n"
      "  tutti doctor 4711              the job with this process\n"
      "  tutti doctor collected/        record files of all nodes, copied into one folder");
  app.add_option("job", options.what,
                 "a folder with record files; or the id of a job, or the pid of a rank, of this machine");
  app.add_flag("--json", options.is_json, "the same for programs");
  app.add_option(
      "--export-torch", options.torch_folder,
      "also write the collectives to this folder, for torch's flight-recorder analyser (torchfrtrace)");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  const auto job = find_job(options.what);
  if (!job) return usage_error("doctor", job.status());
  if (!options.torch_folder.empty()) {
    if (const Status done = export_for_torch(*job, options.torch_folder); !done)
      return usage_error("doctor", done.with_context("--export-torch"));
  }
  const JobVerdict verdict = judge(*job);
  if (options.is_json) {
    fmt::print("{}\n", to_json(*job, verdict).dump());
  } else {
    fmt::print("{}\n\njob '{}', {} of {} ranks:\n", verdict.sentence, job->job, job->ranks.size(),
               job->size());
    print_ranks(*job);
  }
  constexpr int kFoundDifference = 3;
  return verdict.kind == JobVerdict::Kind::nothing ? 0 : kFoundDifference;
}

}  // namespace tutti::tool

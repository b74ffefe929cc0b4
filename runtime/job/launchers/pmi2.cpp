// Speaks PMI-2. Knows no bootstrap.
#include "runtime/job/launchers/pmi2.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/job/launchers/rank_variables.hpp"

namespace tutti::detail {

Result<std::shared_ptr<Pmi2>> Pmi2::open(const Environment& environment, Clock::time_point deadline) {
  const Result<std::string> rank = require(environment, "PMI_RANK", "pmi2");
  if (!rank) return rank.status();
  const Result<std::string> job = require(environment, "PMI_JOBID", "pmi2");
  if (!job) return job.status();
  Result<LauncherSocket> socket = PmiConnection::open_descriptor(environment);
  if (!socket) return socket.status();
  const std::shared_ptr<Pmi2> session(new Pmi2(*std::move(socket)));
  TUTTI_RETURN_IF_ERROR(session->introduce(*rank, *job, deadline));
  return session;
}

Result<std::shared_ptr<Pmi2>> Pmi2::of_process(const Environment& environment, Clock::time_point deadline) {
  static SessionOfProcess<Pmi2> session;
  const std::string key = fmt::format("{}|{}", environment.find("PMI_FD").value_or(""),
                                      environment.find("PMI_RANK").value_or(""));
  return session.get(key, [&] { return open(environment, deadline); });
}

Status Pmi2::introduce(const std::string& rank, const std::string& job, Clock::time_point deadline) {
  // The first exchange is one of PMI-1, and agrees on the version.
  const Result<PmiRecord> version =
      connection_.call("cmd=init pmi_version=2 pmi_subversion=0", "response_to_init", deadline);
  if (!version) return version.status();
  if (version->number("rc") != 0 || version->number("pmi_version") != 2) {
    return unsupported(fmt::format("{}: the launcher does not speak PMI 2.0", connection_.name()));
  }
  connection_.use_frames();
  const Result<PmiRecord> init =
      connection_.call(write_pmi2("fullinit", {{"pmijobid", job}, {"pmirank", rank}, {"threaded", "FALSE"}}),
                       "fullinit-response", deadline);
  if (!init) return init.status();
  rank_ = init->number("rank");
  size_ = init->number("size");
  if (init->number("rc") != 0 || size_ < 1 || size_ > kMaxSize || rank_ < 0 || rank_ >= size_) {
    return internal_error(fmt::format("{}: rank {} of {} is not a rank (rc {})", connection_.name(), rank_,
                                      size_, init->number("rc")));
  }
  const Result<PmiRecord> id = connection_.call(write_pmi2("job-getid", {}), "job-getid-response", deadline);
  if (!id) return id.status();
  job_ = id->field("jobid");
  const Result<PmiRecord> mapping = connection_.call(
      write_pmi2("info-getjobattr", {{"key", "PMI_process_mapping"}}), "info-getjobattr-response", deadline);
  if (!mapping) return mapping.status();
  if (mapping->field("found") == "TRUE") {
    Result<std::vector<int>> nodes = parse_process_mapping(mapping->field("value"), size_);
    if (!nodes) return nodes.status();
    node_of_rank_ = *std::move(nodes);
  }
  return {};
}

Status Pmi2::put(const std::string& key, const std::string& value, Clock::time_point deadline) {
  const Result<PmiRecord> answer =
      connection_.call(write_pmi2("kvs-put", {{"key", key}, {"value", value}}), "kvs-put-response", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0) {
    return internal_error(fmt::format("{}: put of {}: rc {}", describe(), key, answer->number("rc")));
  }
  return {};
}

Result<std::optional<std::string>> Pmi2::find(const std::string& key, Clock::time_point deadline) {
  const Result<PmiRecord> answer = connection_.call(
      write_pmi2("kvs-get", {{"jobid", job_}, {"srcid", "-1"}, {"key", key}}), "kvs-get-response", deadline);
  if (!answer) return answer.status();
  if (answer->number("rc") != 0 || answer->field("found") != "TRUE") return std::optional<std::string>();
  return std::optional<std::string>(answer->field("value"));
}

Status Pmi2::fence(Clock::time_point deadline) {
  const Result<PmiRecord> answer =
      connection_.call(write_pmi2("kvs-fence", {}), "kvs-fence-response", deadline);
  if (answer) {
    return answer->number("rc") == 0 ? Status()
                                     : internal_error(fmt::format("{}: the fence failed", describe()));
  }
  return explain_fence(answer.status(), describe(), rank_, size_);
}

std::string Pmi2::describe() const { return fmt::format("PMI-2 ({}, {})", connection_.name(), job_); }

void Pmi2::finalize() { connection_.finalize(write_pmi2("finalize", {})); }

}  // namespace tutti::detail

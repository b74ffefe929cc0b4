// Reading launchers' variables and unique ids: what is recognised, and that every error names the variable.
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "runtime/job/launchers/http_store.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "runtime/job/launchers/slurm.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

Environment environment_of(const std::map<std::string, std::string>& values) {
  Environment environment;
  for (const auto& [name, value] : values) environment.set(name, value);
  return environment;
}

std::map<std::string, std::string> torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"}};
}

std::map<std::string, std::string> tutti_run() {
  return {{"TUTTI_RANK", "1"},       {"TUTTI_SIZE", "2"},     {"TUTTI_LOCAL_RANK", "1"},
          {"TUTTI_LOCAL_SIZE", "2"}, {"TUTTI_JOB_ID", "abc"}, {"TUTTI_SECRET", "s"}};
}

std::string error_of(const std::map<std::string, std::string>& values) {
  return detect_launch(environment_of(values)).status().message();
}

}  // namespace

TEST_CASE("without variables the world has one rank") {
  const auto info = detect_launch(environment_of({{"MASTER_ADDR", "left over"}, {"LOCAL_RANK", "0"}}));
  REQUIRE(info);
  CHECK(info->rank == 0);
  CHECK(info->size == 1);
  CHECK(info->launcher == "none");
}

TEST_CASE("tutti run and torchrun are recognised") {
  const auto run = detect_launch(environment_of(tutti_run()));
  REQUIRE(run);
  CHECK(run->launcher == "tutti run");
  CHECK(run->rank == 1);
  CHECK(run->local_size == 2);
  CHECK(run->secret == "s");
  const auto torch = detect_launch(environment_of(torchrun()));
  REQUIRE(torch);
  CHECK(torch->launcher == "torchrun");
  CHECK(torch->rank == 3);
  CHECK(torch->size == 4);
  CHECK(torch->local_rank == 3);
  CHECK(torch->job != run->job);
}

TEST_CASE("every part of torchrun's rendezvous separates jobs") {
  const auto base = detect_launch(environment_of(torchrun()));
  for (const char* name :
       {"MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}) {
    auto other = torchrun();
    other[name] = "1234";
    CHECK(detect_launch(environment_of(other))->job != base->job);
  }
}

TEST_CASE("set by hand, the local variables may be missing") {
  auto values = torchrun();
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"}) values.erase(name);
  const auto info = detect_launch(environment_of(values));
  REQUIRE(info);
  CHECK(info->rank == 3);
  CHECK(info->local_size == 0);
}

TEST_CASE("a missing or wrong variable is named, with what was expected") {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    auto values = torchrun();
    values.erase(name);
    CHECK_THAT(error_of(values), Catch::Matchers::StartsWith(std::string(name) + " is not set"));
  }
  for (const char* name : {"TUTTI_RANK", "TUTTI_SIZE"}) {
    auto values = tutti_run();
    values.erase(name);
    CHECK_THAT(error_of(values), Catch::Matchers::StartsWith(std::string(name) + " is not set"));
  }
  auto no_secret = tutti_run();
  no_secret.erase("TUTTI_SECRET");
  CHECK_THAT(error_of(no_secret), Catch::Matchers::StartsWith("TUTTI_SECRET is not set"));
  const std::map<std::string, std::pair<std::string, std::string>> wrong = {
      {"RANK", {"4", "RANK='4': expected a rank below WORLD_SIZE, a number from 0 to 3"}},
      {"WORLD_SIZE", {"4x", "WORLD_SIZE='4x': expected the number of ranks"}},
      {"LOCAL_RANK", {"-1", "LOCAL_RANK='-1': expected a rank below LOCAL_WORLD_SIZE"}},
      {"LOCAL_WORLD_SIZE",
       {"5", "LOCAL_WORLD_SIZE='5': expected the ranks on this node, at most WORLD_SIZE"}},
      {"MASTER_PORT", {"http", "MASTER_PORT='http': expected a port"}},
  };
  for (const auto& [name, expectation] : wrong) {
    auto values = torchrun();
    values[name] = expectation.first;
    CHECK_THAT(error_of(values), Catch::Matchers::StartsWith(expectation.second));
    CHECK(detect_launch(environment_of(values)).status().code() == StatusCode::invalid_argument);
  }
}

TEST_CASE("two launchers that disagree are both named") {
  auto values = tutti_run();
  values["RANK"] = "1";
  values["WORLD_SIZE"] = "2";
  CHECK(detect_launch(environment_of(values)));
  values["RANK"] = "0";
  CHECK_THAT(error_of(values),
             Catch::Matchers::StartsWith("TUTTI_RANK=1 but RANK=0: two launchers disagree"));
}

TEST_CASE("variables set by hand must not contradict a launcher's, but torchrun may run inside of one") {
  auto values = torchrun();
  values["PMI_RANK"] = "0";
  values["PMI_SIZE"] = "4";
  CHECK(detect_launch(environment_of(values)));
  values.erase("TORCHELASTIC_RUN_ID");
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("RANK=3 but PMI_RANK=0: two launchers disagree"));
  values["PMI_SIZE"] = "2";  // two processes that started two ranks each
  CHECK(detect_launch(environment_of(values)));
  values["SLURM_PROCID"] = "2";
  values["SLURM_STEP_NUM_TASKS"] = "4";
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("RANK=3 but SLURM_PROCID=2"));
}

TEST_CASE("variables left over from a smaller job do not split the job of a launcher") {
  std::map<std::string, std::string> left_over = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  CHECK(detect_launch(environment_of(left_over))->size == 1);
  const std::map<std::string, std::string> launchers[] = {
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}},
      {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}},
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}},
      {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "x"}},
  };
  for (const auto& launcher : launchers) {
    auto values = left_over;
    values.insert(launcher.begin(), launcher.end());
    CAPTURE(launcher.begin()->first);
    CHECK_THAT(error_of(values), Catch::Matchers::Contains("two launchers disagree"));
    CHECK_THAT(error_of(values), Catch::Matchers::Contains("TUTTI_LAUNCHER (torchrun or"));
    values["TUTTI_LAUNCHER"] = "torchrun";
    CHECK(detect_launch(environment_of(values))->size == 1);
  }
}

TEST_CASE("TUTTI_LAUNCHER names the launcher, and no other counts") {
  auto values = torchrun();
  values["TUTTI_LAUNCHER"] = "none";
  CHECK(detect_launch(environment_of(values))->size == 1);
  values["TUTTI_LAUNCHER"] = "tutti";
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("TUTTI_SIZE is not set"));
  values["TUTTI_LAUNCHER"] = "mpirun";
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("TUTTI_LAUNCHER='mpirun' is not valid"));
  for (const auto& [name, value] : tutti_run()) values[name] = value;
  values["TUTTI_LAUNCHER"] = "torchrun";
  CHECK(detect_launch(environment_of(values))->launcher == "torchrun");
  values = tutti_run();
  values.erase("TUTTI_JOB_ID");
  values["TUTTI_LAUNCHER"] = "tutti";
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("TUTTI_JOB_ID is not set"));
}

TEST_CASE("Open MPI's variables do without PMIx") {
  std::map<std::string, std::string> values = {
      {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_MCA_ess_base_jobid", "7"},    {"TUTTI_SECRET", "s"}};
  const auto info = detect_launch(environment_of(values));
  REQUIRE(info);
  CHECK(info->launcher == "openmpi");
  CHECK(info->rank == 1);
  CHECK(info->local_size == 2);
  CHECK(info->secret == "s");
  CHECK_FALSE(info->store);
  values["OMPI_MCA_ess_base_jobid"] = "8";
  CHECK(detect_launch(environment_of(values))->job != info->job);
  values.erase("OMPI_MCA_ess_base_jobid");
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("PMIX_NAMESPACE is not set"));
}

TEST_CASE("the environment of a Slurm step tells everything but a port and a secret") {
  std::map<std::string, std::string> values = {{"SLURM_PROCID", "5"},
                                               {"SLURM_STEP_NUM_TASKS", "6"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_JOB_ID", "17"},
                                               {"SLURM_NODEID", "2"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                                               {"SLURM_STEP_NODELIST", "rack[2-3]n[07,09-10],login1"}};
  const auto info = detect_launch(environment_of(values));
  REQUIRE(info);
  CHECK(info->launcher == "slurm");
  CHECK(info->rank == 5);
  CHECK(info->size == 6);
  CHECK(info->node == 2);
  CHECK(info->local_rank == 1);
  CHECK(info->local_size == 2);
  CHECK(info->host == "rack2n07");
  CHECK(info->secret.empty());
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME"}) {
    auto other = values;
    other[name] = "18";
    CHECK(detect_launch(environment_of(other))->job != info->job);
  }
  auto wrong = values;
  wrong["SLURM_LOCALID"] = "2";
  CHECK_THAT(error_of(wrong), Catch::Matchers::StartsWith("SLURM_LOCALID='2': expected a rank below"));
  wrong["SLURM_STEP_TASKS_PER_NODE"] = "many";
  CHECK_THAT(error_of(wrong), Catch::Matchers::StartsWith("SLURM_STEP_TASKS_PER_NODE: 'many' is not a list"));
  values.erase("SLURM_STEP_ID");  // a batch script is no step
  CHECK(detect_launch(environment_of(values))->launcher == "none");
}

TEST_CASE("Slurm's lists") {
  using namespace detail;
  CHECK(*first_host("n0") == "n0");
  CHECK(*first_host("a,b") == "a");
  CHECK(*first_host("n[010-012]x,b") == "n010x");
  CHECK(*first_host("n[3]") == "n3");
  for (const char* bad : {"", ",", "n[", "n[1", "n[]", "n[x]", "n]", "[-1]"}) {
    CAPTURE(bad);
    CHECK_FALSE(first_host(bad));
  }
  CHECK(*tasks_of_node("3", 0) == 3);
  CHECK(*tasks_of_node("2(x3),1", 2) == 2);
  CHECK(*tasks_of_node("2(x3),1", 3) == 1);
  for (const char* bad : {"", "2(x3),1,", "x", "2(x", "2(x0)", "2(y3)", "-1", "2(x99999999999)"}) {
    CAPTURE(bad);
    CHECK_FALSE(tasks_of_node(bad, 4));
  }
}

TEST_CASE("Horovod's variables name its rendezvous server") {
  std::map<std::string, std::string> values = {{"HOROVOD_RANK", "1"},
                                               {"HOROVOD_SIZE", "4"},
                                               {"HOROVOD_LOCAL_RANK", "1"},
                                               {"HOROVOD_LOCAL_SIZE", "2"},
                                               {"HOROVOD_CROSS_RANK", "0"},
                                               {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "fd00::1"},
                                               {"RANK", "7"},
                                               {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"}};
  const auto info = detect_launch(environment_of(values));
  REQUIRE(info);
  CHECK(info->launcher == "horovod");
  CHECK(info->rank == 1);
  CHECK(info->local_size == 2);
  CHECK(info->node == -1);
  REQUIRE(info->store);
  CHECK(info->store->describe() == "HTTP (http://[fd00::1]:4711/tutti)");
  values["HOROVOD_GLOO_RENDEZVOUS_PORT"] = "0";
  CHECK_THAT(error_of(values),
             Catch::Matchers::StartsWith("HOROVOD_GLOO_RENDEZVOUS_PORT='0': expected a port"));
  values.erase("HOROVOD_GLOO_RENDEZVOUS_ADDR");
  CHECK_THAT(error_of(values), Catch::Matchers::StartsWith("HOROVOD_GLOO_RENDEZVOUS_ADDR is not set"));
}

TEST_CASE("Horovod's store says why its server gives nothing") {
  const auto silent = listen_at(*parse_socket_address("127.0.0.1:0"));
  REQUIRE(silent);
  SocketAddress address;
  address.bytes = sizeof address.storage;
  REQUIRE(::getsockname(*silent, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) == 0);
  const auto store = detail::make_http_store("127.0.0.1", address.port(), "");
  const std::string prefix = store->describe() + ": ";
  Status status = store->get("key", Clock::now() + std::chrono::milliseconds(50)).status();
  if (status.code() != StatusCode::unsupported) {  // the build has the module
    CHECK(status.message() == prefix + "the server did not answer in time");
    CHECK(status.code() == StatusCode::timeout);
    ::close(*silent);
    status = store->put("key", "value");
    CHECK(status.code() == StatusCode::peer_failed);
  } else {
    ::close(*silent);
  }
  CHECK_THAT(status.message(), Catch::Matchers::StartsWith(prefix));
  status = detail::make_http_store("127.0.0.1", 1, "/nowhere")->put("key", "value");
  CHECK_FALSE(status);
}

TEST_CASE("what can be seen of launchers names the variables that are set") {
  const auto sights = list_launchers(environment_of(torchrun()));
  int seen_count = 0;
  for (const LauncherSight& sight : sights) {
    seen_count += sight.is_seen ? 1 : 0;
    if (sight.name == "torchrun") CHECK(sight.variables.size() == torchrun().size());
    if (sight.name == "pmi1") CHECK(sight.variables.empty());
  }
  CHECK(seen_count == 1);
}

TEST_CASE("a world of one asks no launcher") {
  const auto info =
      detect_launch(environment_of({{"PMI_FD", "1000000"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
  REQUIRE(info);
  CHECK(info->launcher == "pmi1");
  CHECK(info->size == 1);
  CHECK_FALSE(info->store);
}

TEST_CASE("a job on several nodes has the address of rank 0") {
  auto values = torchrun();
  CHECK_FALSE(detect_launch(environment_of(values))->may_span_nodes());
  values["LOCAL_WORLD_SIZE"] = "2";
  values["LOCAL_RANK"] = "1";
  const auto info = detect_launch(environment_of(values));
  REQUIRE(info);
  CHECK(info->may_span_nodes());
  CHECK(info->local_size == 2);
  CHECK(info->host == "127.0.0.1");
  values.erase("LOCAL_WORLD_SIZE");
  CHECK(detect_launch(environment_of(values))->may_span_nodes());  // nobody says that it does not
  auto run = tutti_run();
  run["TUTTI_ADDRESS"] = "node7:4711";
  CHECK(detect_launch(environment_of(run))->host == "node7:4711");
  run["TUTTI_ADDRESS"] = "local";
  CHECK(detect_launch(environment_of(run))->host.empty());
}

TEST_CASE("unique ids differ, and only well-formed ones are taken") {
  const auto id = new_unique_id();
  REQUIRE(id);
  CHECK(*id != *new_unique_id());
  const auto info = launch_from_unique_id(*id, 2, 3);
  REQUIRE(info);
  CHECK(info->rank == 2);
  CHECK(info->secret.size() == 64);
  CHECK(info->job == launch_from_unique_id(*id, 0, 3)->job);
  CHECK_FALSE(info->host.empty());
  for (std::string bad : {std::string(), std::string("tutti-"), *id + " ", "x" + id->substr(1),
                          id->substr(0, 101) + "g" + id->substr(102), id->substr(0, 100)}) {
    const Status status = launch_from_unique_id(bad, 0, 1).status();
    CHECK(status.code() == StatusCode::invalid_argument);
    if (!bad.empty()) CHECK(status.message().find(bad) == std::string::npos);  // it may hold a secret
  }
  CHECK_FALSE(launch_from_unique_id(*id, 3, 3));
  CHECK_FALSE(launch_from_unique_id(*id, -1, 3));
  CHECK_FALSE(launch_from_unique_id(*id, 0, 0));
}

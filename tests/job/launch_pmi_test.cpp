// PMI without a launcher: its texts, and a session with a server that this test plays.
#include <sys/socket.h>

#include <array>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "runtime/job/launchers/pmi1.hpp"
#include "runtime/job/launchers/pmi2.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pmi_server.hpp"

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;
using tutti::test::PmiServer;

namespace {

using Answers = std::map<std::string, std::string>;

Clock::time_point soon() { return Clock::now() + 10s; }

// As Hydra answers, with small limits. `changed` replaces answers by command.
class Hydra {
 public:
  explicit Hydra(Answers changed = {}) : changed_(std::move(changed)) {}
  std::string operator()(const PmiRecord& record) {
    if (const auto found = changed_.find(record.command); found != changed_.end()) return found->second;
    if (record.command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (record.command == "get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=80\n";
    if (record.command == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1\n";
    if (record.command == "barrier_in") return "cmd=barrier_out\n";
    if (record.command == "finalize") return "cmd=finalize_ack\n";
    if (record.command == "put") {
      values_[std::string(record.field("key"))] = record.field("value");
      return record.field("value").size() < 80 ? "cmd=put_result rc=0 msg=success\n"
                                               : "cmd=put_result rc=-1 msg=too_long\n";
    }
    if (record.field("key") == "PMI_process_mapping") {
      return "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n";
    }
    const auto found = values_.find(std::string(record.field("key")));
    if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
    return "cmd=get_result rc=0 msg=success value=" + found->second + "\n";
  }

 private:
  Answers changed_, values_;
};

// As Slurm answers: two semicolons are not one again.
class Slurm {
 public:
  explicit Slurm(Answers changed = {}) : changed_(std::move(changed)) {}
  std::string operator()(const PmiRecord& record) {
    if (const auto found = changed_.find(record.command); found != changed_.end()) return found->second;
    if (record.command == "init") return "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
    if (record.command == "fullinit") {
      return frame("cmd=fullinit-response;rc=0;rank=" + std::string(record.field("pmirank")) + ";size=4;");
    }
    if (record.command == "job-getid") return frame("cmd=job-getid-response;rc=0;jobid=7.0;");
    if (record.command == "info-getjobattr") {
      return frame("cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,1));");
    }
    if (record.command == "kvs-put") {
      values_[std::string(record.field("key"))] = record.field("value");
      return frame("cmd=kvs-put-response;rc=0;");
    }
    if (record.command == "kvs-get") {
      const auto found = values_.find(std::string(record.field("key")));
      if (found == values_.end()) return frame("cmd=kvs-get-response;rc=0;found=FALSE;");
      return frame("cmd=kvs-get-response;rc=0;found=TRUE;value=" + found->second + ";");
    }
    return frame("cmd=" + record.command + "-response;rc=0;");
  }

 private:
  // The length is filled up on the right.
  static std::string frame(const std::string& body) {
    std::string length = std::to_string(body.size());
    length.resize(6, ' ');
    return length + body;
  }
  Answers changed_, values_;
};

std::string error_of_open(Answers changed) {
  const PmiServer server{Hydra(std::move(changed))};
  return Pmi1::open(server.environment(0, 2), Clock::now() + 1s).status().to_string();
}

}  // namespace

TEST_CASE("records of both versions") {
  const auto one = parse_pmi1("cmd=get_result rc=0  msg=success value=(a=b)");
  REQUIRE(one);
  CHECK(one->command == "get_result");
  CHECK(one->number("rc") == 0);
  CHECK(one->field("value") == "(a=b)");
  CHECK(one->field("other").empty());
  CHECK(one->number("msg") == -1);
  for (const char* bad : {"", " ", "rc=0 cmd=x", "cmd=", "cmd=x rest", "cmd=x =y"})
    CHECK_FALSE(parse_pmi1(bad));

  const std::string written = write_pmi2("kvs-put", {{"key", "a"}, {"value", "x;;y=z"}});
  CHECK(written == "    33cmd=kvs-put;key=a;value=x;;;;y=z;");
  const auto two = parse_pmi2(std::string_view(written).substr(6));
  REQUIRE(two);
  CHECK(two->command == "kvs-put");
  CHECK(two->field("value") == "x;;y=z");
  for (const char* bad : {"", ";", "cmd=x", "cmd=x;;", "key=x;", "cmd=x;y;"}) CHECK_FALSE(parse_pmi2(bad));
}

TEST_CASE("the process mapping deals ranks out to blocks") {
  using Nodes = std::vector<int>;
  CHECK(*parse_process_mapping("(vector,(0,1,1))", 3) == Nodes{0, 0, 0});
  CHECK(*parse_process_mapping("(vector,(0,2,2))", 6) == Nodes{0, 0, 1, 1, 0, 0});
  CHECK(*parse_process_mapping("(vector,(0,1,3),(1,2,1))", 6) == Nodes{0, 0, 0, 1, 2, 0});
  CHECK(parse_process_mapping("(vector,(0,1,1))", 0)->empty());
  for (const char* bad : {"", "(vector)", "(vector,)", "(vector,(0,0,1))", "(vector,(0,1,0))",
                          "(vector,(0,1))", "(vector,(0,1,1,1))", "(vector,(0,1,-1))", "(vector,(0,1,1)",
                          "(matrix,(0,1,1))", "(vector,(0,1,99999999999))", "(vector (0,1,1))"}) {
    CAPTURE(bad);
    CHECK(parse_process_mapping(bad, 2).status().code() == StatusCode::invalid_argument);
  }
}

TEST_CASE("escaped texts keep every byte and need none that PMI reads") {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  const std::string escaped = escape_pmi(all);
  CHECK(escaped.find_first_of(" =;\n%\"") == std::string::npos);
  CHECK(*unescape_pmi(escaped) == all);
  for (const char* bad : {"~", "~0", "a~0g", "~-1"}) CHECK_FALSE(unescape_pmi(bad));
}

TEST_CASE("a session knows ranks and nodes, stores long values and finalizes") {
  PmiServer server{Hydra()};
  {
    const auto session = Pmi1::open(server.environment(3, 4), soon());
    REQUIRE(session);
    CHECK((*session)->rank() == 3);
    CHECK((*session)->size() == 4);
    CHECK((*session)->node_of_rank() == std::vector<int>{0, 1, 0, 1});
    CHECK((*session)->space_name() == "kvs_1");
    const auto store = make_piecewise_store(*session);
    std::string value;
    for (int i = 0; i < 1000; ++i) value += static_cast<char>(i);
    const std::string long_key = "tutti/" + std::string(100, 'k');
    REQUIRE(store->put(long_key, value));
    REQUIRE(store->put("empty", ""));
    REQUIRE(store->commit(soon()));
    CHECK(*store->get(long_key, soon()) == value);
    CHECK(*store->get("empty", soon()) == "");
    const Status missing = store->get("missing", Clock::now() + 500ms).status();
    CHECK(missing.code() == StatusCode::timeout);
    CHECK_THAT(missing.message(), Catch::Matchers::EndsWith("no rank has put missing in time"));
    CHECK(store->put("huge", std::string(100000, 'x')).code() == StatusCode::invalid_argument);
  }
  CHECK(server.finish().back() == "finalize");
}

TEST_CASE("a session of PMI-2 does the same in frames") {
  PmiServer server{Slurm()};
  {
    const auto session = Pmi2::open(server.environment(2, 4), soon());
    REQUIRE(session);
    CHECK((*session)->rank() == 2);
    CHECK((*session)->size() == 4);
    CHECK((*session)->node_of_rank() == std::vector<int>{0, 1, 0, 1});
    CHECK((*session)->describe() == "PMI-2 (PMI_FD=" + std::to_string(server.client()) + ", 7.0)");
    const auto store = make_piecewise_store(*session);
    const std::string value = "a;;b=c;" + std::string(3000, '\n');
    REQUIRE(store->put("key", value));
    REQUIRE(store->commit(soon()));
    CHECK(*store->get("key", soon()) == value);
    CHECK(store->get("missing", Clock::now() + 500ms).status().code() == StatusCode::timeout);
  }
  CHECK(server.finish().back() == "finalize");
}

TEST_CASE("what a launcher does wrong in PMI-2 is told") {
  using Catch::Matchers::Contains;
  const auto error_of = [](Answers changed) {
    const PmiServer server{Slurm(std::move(changed))};
    return Pmi2::open(server.environment(0, 4), Clock::now() + 1s).status().to_string();
  };
  CHECK_THAT(error_of({{"init", "cmd=response_to_init rc=-1 pmi_version=1\n"}}),
             Contains("does not speak PMI 2.0"));
  CHECK_THAT(error_of({{"fullinit", "hello, world"}}), Contains("'hello,' is not the length of a record"));
  CHECK_THAT(error_of({{"fullinit", "99999999"}}), Contains("did not answer in time"));
  CHECK_THAT(error_of({{"fullinit", "35    cmd=fullinit-response;rc=0;rank=4;"}}),
             Contains("did not answer in time"));
  CHECK_THAT(error_of({{"fullinit", "41    cmd=fullinit-response;rc=0;rank=4;size=4;"}}),
             Contains("rank 4 of 4"));
  CHECK_THAT(error_of({{"fullinit", "10    cmd=other;"}}), Contains("answered 'other'"));
}

TEST_CASE("the connection is shared: nothing is taken that was not asked for") {
  PmiServer server{Hydra(Answers{{"barrier_in", "cmd=barrier_out\ncmd=for_mpi\n"}})};
  const auto session = Pmi1::open(server.environment(0, 2), soon());
  REQUIRE(session);
  REQUIRE((*session)->fence(soon()));
  std::array<char, 64> bytes{};
  CHECK(std::string(bytes.data(), static_cast<std::size_t>(::recv(server.client(), bytes.data(), bytes.size(),
                                                                  0))) == "cmd=for_mpi\n");
}

TEST_CASE("a fence that is not answered ends, and its late answer is not taken for another's") {
  std::promise<void> late;
  Hydra hydra;
  PmiServer server{[&, is_first = true](const PmiRecord& record) mutable {
    if (record.command == "barrier_in" && std::exchange(is_first, false)) late.get_future().wait();
    return hydra(record);
  }};
  const auto session = Pmi1::open(server.environment(1, 2), soon());
  REQUIRE(session);
  const Status status = (*session)->fence(Clock::now() + 50ms);
  CHECK(status.code() == StatusCode::timeout);
  CHECK_THAT(status.message(),
             Catch::Matchers::Contains("rank 1 is in the fence, but not all of the 2 ranks"));
  late.set_value();
  CHECK((*session)->put("key", "value", soon()));
  CHECK((*session)->find("key", soon())->value() == "value");
}

TEST_CASE("what a launcher does wrong is told") {
  using Catch::Matchers::Contains;
  CHECK_THAT(error_of_open({{"init", "cmd=response_to_init rc=-1\n"}}), Contains("does not speak PMI 1.1"));
  CHECK_THAT(error_of_open({{"init", "cmd=barrier_out\n"}}), Contains("answered 'barrier_out'"));
  CHECK_THAT(error_of_open({{"init", "hello\n"}}), Contains("'hello' is not name=value"));
  CHECK_THAT(error_of_open({{"init", ""}}), Contains("did not answer in time"));
  CHECK_THAT(error_of_open({{"get_maxes", "cmd=maxes keylen_max=8 vallen_max=8\n"}}), Contains("too short"));
  CHECK_THAT(error_of_open({{"get", "cmd=get_result rc=0 value=(vector,(0,0,0))\n"}}),
             Contains("PMI_process_mapping='(vector,(0,0,0))'"));
  PmiServer server{Hydra()};
  const auto session = Pmi1::open(server.environment(0, 2), soon());
  REQUIRE(session);
  server.hang_up();
  const Status gone = (*session)->fence(soon());
  CHECK(gone.code() == StatusCode::peer_failed);
  CHECK_THAT(gone.message(), Contains("MPI_Finalize, or an earlier program of this rank, has ended PMI"));
}

TEST_CASE("variables that name no connection are told") {
  using Catch::Matchers::StartsWith;
  const auto error_of = [](const Environment& environment) {
    return std::string(Pmi1::open(environment, Clock::now() + 1s).status().message());
  };
  CHECK_THAT(error_of({{"PMI_FD", "1000000"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}),
             StartsWith("PMI_FD=1000000 is not open in this process"));
  CHECK_THAT(error_of({{"PMI_FD", "x"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), StartsWith("PMI_FD='x'"));
  CHECK_THAT(error_of({{"PMI_FD", "3"}, {"PMI_SIZE", "2"}}), StartsWith("PMI_RANK is not set"));
  CHECK_THAT(error_of({{"PMI_PORT", "localhost:1"}}), StartsWith("PMI_ID is not set"));
  CHECK_THAT(error_of({{"PMI_PORT", "localhost"}, {"PMI_ID", "0"}}), StartsWith("PMI_PORT='localhost'"));
  CHECK_THAT(error_of({{"PMI_PORT", "127.0.0.1:1"}, {"PMI_ID", "0"}}),
             StartsWith("PMI_PORT: cannot connect to 127.0.0.1:1"));
}

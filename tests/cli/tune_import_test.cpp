// Rules of other libraries as tuning files: what they mean there, and what is listed rather than guessed.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/selection/selection_support.hpp"
#include "tools/cli/tune/import.hpp"

namespace tutti::tool {
namespace {

using test::ask;
using test::selector_of;

Import import(const std::string& text, ImportForm form) {
  auto made = import_rules(text, std::nullopt);
  INFO(made.status().to_string());
  REQUIRE(made.is_ok());
  CHECK(made->form == form);
  // The written text is a tuning file.
  REQUIRE(parse_tuning(to_text(made->tuning), "F").is_ok());
  return *std::move(made);
}

// The algorithm of a group of `size` ranks; "default" where the import has no rule.
std::string chosen(const Import& made, Collective collective, std::uint64_t bytes, std::uint32_t size,
                   Reach reach = Reach::node) {
  const Selector selector = selector_of(rule_texts(made.tuning, "F"));
  Question q = ask(collective, bytes, size);
  q.reach = reach;
  const auto choice = selector.choose(q);
  REQUIRE(choice.is_ok());
  return choice->source == "F" ? to_text(*choice->row, choice->params) : "default";
}

bool is_remarked(const Import& made, const std::string& where, const std::string& what,
                 const std::string& why) {
  return std::any_of(made.remarks.begin(), made.remarks.end(), [&](const ImportRemark& r) {
    return r.where == where && r.what.find(what) != std::string::npos && r.why.find(why) != std::string::npos;
  });
}

TEST_CASE("Open MPI's text: thresholds are lower bounds, of sizes and of ranks", "[import]") {
  const Import made = import(
      "3 # collectives\n"
      "2 # allreduce\n"
      "2 # sizes\n"
      "4 # ranks\n"
      "3 # rules\n"
      "0 3 0 0 # recursive doubling\n"
      "10000 5 0 65536\n"
      "1000000 0 0 0 # theirs to choose\n"
      "16\n1\n0 1 0 0\n"
      "7 1\n0 1 0 2 2 4096\n"
      "4 1 0 1\n0 1 0 0\n",
      ImportForm::openmpi);
  CHECK(chosen(made, Collective::allreduce, 0, 4) == "recursive_doubling");
  CHECK(chosen(made, Collective::allreduce, 9999, 15) == "recursive_doubling");
  // Fewer ranks than the first set is for: the first set.
  CHECK(chosen(made, Collective::allreduce, 9999, 2) == "recursive_doubling");
  CHECK(chosen(made, Collective::allreduce, 10000, 15) == "ring");
  CHECK(chosen(made, Collective::allreduce, 999999, 4) == "ring(segments=4)");
  CHECK(chosen(made, Collective::allreduce, 1000000, 4) == "default");
  CHECK(chosen(made, Collective::allreduce, 10, 16) == "default");
  CHECK(is_remarked(made, "line 11", "allreduce 1 (basic_linear)", "no row of ours"));
  CHECK(chosen(made, Collective::broadcast, 1, 4) == "default");
  CHECK(is_remarked(made, "line 13", "bcast 2 (chain)", "2 chains"));
  CHECK(is_remarked(made, "line 14", "alltoallv", "no rules of its own"));
}

TEST_CASE("Open MPI's text, version 2: requests may follow in the line", "[import]") {
  const Import made =
      import("rule-file-version-2\n1\n3\n1\n0\n3\n0 3 0 0\n1024 1 0 0 8\n4096 2 0 0\n", ImportForm::openmpi);
  CHECK(chosen(made, Collective::alltoall, 1, 8) == "bruck");
  CHECK(chosen(made, Collective::alltoall, 1024, 8, Reach::network) == "linear");
  CHECK(chosen(made, Collective::alltoall, 4096, 8) == "pairwise");
  CHECK(made.remarks.empty());
  CHECK(made.rule_count == 3);
}

TEST_CASE("a damaged file of Open MPI's is refused with its place", "[import]") {
  const std::vector<std::pair<std::string, std::string>> wrongs = {
      {"1\n2\n1\n4\n1\n8 3 0 0\n", "line 6 column 1: expected 0"},
      {"1\n2\n1\n4\n2\n0 3 0 0\n0 3 0 0\n", "line 7 column 1: expected a size above 0"},
      {"1\n2\n2\n4\n0\n4\n0\n", "line 6 column 1: expected a size above 4"},
      {"1\n99\n", "line 2 column 1: expected the id of a collective of at most 21"},
      {"1\n2\n1\n4\n1\n0 x 0 0\n", "line 6 column 3: expected an algorithm; found 'x"},
      {"1\n2\n1\n", "expected a communicator size; found the end"},
      {"1\n2\n0\n7\n", "line 4 column 1: expected the end"},
      {"rule-file-version-9\n", "column 19: expected a version of at most 2"},
      {"{\"collectives\": []}", "collectives: expected an object"},
      {"{\"collectives\": {\"allreduce\": [{}]}}", "allreduce[0]: expected \"rules\""},
      {"{\"collectives\": {\"allreduce\": [{\"rules\": [{}]}]}}", "allreduce[0].rules[0]: expected \"alg\""},
      {"{\"rule_file_version\": 4}", "expected 3"},
      {"{", "line 1 column 2: this is no JSON"},
      {"{\"collectives\": {\n  \"allreduce\": [],\n}}",
       "line 3 column 1: this is no JSON, which has no comments"},
      {"{ // theirs\n}", "line 1 column 3: this is no JSON"},
  };
  for (const auto& [text, words] : wrongs) {
    const auto made = import_rules(text, std::nullopt);
    REQUIRE(!made.is_ok());
    INFO(made.status().message() << "\nexpected " << words);
    CHECK(made.status().message().find(words) != std::string::npos);
  }
}

TEST_CASE("Open MPI's JSON: the first match wins, ends are included", "[import]") {
  const Import made = import(
      R"({"rule_file_version": 3, "module": "tuned", "collectives": {
        "allreduce": [
          {"comm_size_min": 4, "comm_size_max": 8, "rules": [
            {"msg_size_min": 512, "msg_size_max": 511999, "alg": 2},
            {"msg_size_max": 600000, "alg": "allgather_reduce"},
            {"msg_size_min": 512000, "msg_size_max": "inf", "alg": "recursive_doubling", "reqs": 8}]},
          {"rules": [{"alg": "rabenseifner"}]}],
        "bcast": [{"rules": [{"alg": "pipeline", "seg_size": 0}, {"alg": "warp"}]}],
        "allgather": [{"comm_rank_distribution": "disjoint", "rules": [{"alg": 4}]},
                      {"rules": [{"alg": "bruck-k-fanout", "faninout": 3}]}]}})",
      ImportForm::openmpi);
  CHECK(chosen(made, Collective::allreduce, 512, 4) == "reduce_broadcast");
  CHECK(chosen(made, Collective::allreduce, 511999, 8) == "reduce_broadcast");
  // Theirs would run what we do not have: no later rule may take its place.
  CHECK(chosen(made, Collective::allreduce, 600000, 8) == "default");
  CHECK(is_remarked(made, "allreduce[0].rules[1]", "allgather_reduce", "no row of ours"));
  CHECK(chosen(made, Collective::allreduce, 600001, 8) == "recursive_doubling");
  CHECK(chosen(made, Collective::allreduce, 600001, 9) == "rabenseifner");
  CHECK(chosen(made, Collective::broadcast, 1U << 20U, 3) == "chain(segments=1)");
  CHECK(is_remarked(made, "bcast[0].rules[1]", "warp", "no algorithm"));
  CHECK(chosen(made, Collective::allgather, 64, 9) == "bruck(radix=3)");
  CHECK(is_remarked(made, "allgather[0]", "comm_rank_distribution", "left out"));
}

TEST_CASE("oneCCL's variables: later entries win, a bare name clears", "[import]") {
  const Import made = import(
      "# tuned\n"
      "export CCL_ALLREDUCE=\"nreduce;recursive_doubling:0-8192;topo:100-200\"\n"
      "CCL_BCAST=ring:0-10;double_tree CCL_ALLGATHERV='naive:0-64;ring:65-max;bogus:7-1;what:1-2'\n"
      "CCL_REDUCE_SCATTER=ring:0-100 CCL_REDUCE_SCATTER_SCALEOUT=ring CCL_LOG_LEVEL=info\n"
      "CCL_ALLTOALL=naive\n",
      ImportForm::ccl);
  CHECK(chosen(made, Collective::allreduce, 99, 4) == "recursive_doubling");
  CHECK(chosen(made, Collective::allreduce, 200, 4) == "default");
  CHECK(is_remarked(made, "line 2", "topo:100-200", "GPUs"));
  CHECK(chosen(made, Collective::allreduce, 8192, 4) == "recursive_doubling");
  CHECK(chosen(made, Collective::allreduce, 8193, 4) == "two_shot");
  CHECK(chosen(made, Collective::broadcast, 5, 4) == "double_binary_tree");
  CHECK(chosen(made, Collective::allgather, 64, 4) == "direct");
  CHECK(chosen(made, Collective::allgather, 65, 4) == "ring");
  CHECK(is_remarked(made, "line 3", "bogus:7-1", "expected bytes"));
  CHECK(is_remarked(made, "line 3", "what:1-2", "no algorithm"));
  CHECK(is_remarked(made, "line 4", "ring:0-100", "not known"));
  CHECK(is_remarked(made, "line 4", "SCALEOUT", "between nodes"));
  CHECK(is_remarked(made, "line 4", "CCL_LOG_LEVEL", "names no algorithm"));
  CHECK(chosen(made, Collective::alltoall, 5, 4) == "linear");
}

TEST_CASE("NCCL's table: the first line that matches wins, -1 is any", "[import]") {
  const Import made = import(
      "# by optimize_config.py\n"
      "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n"
      "allreduce,0,65536,tree,ll,2,1,-1,-1,-1\n"
      "allreduce,0,65536,nvls,simple,4,-1,-1\n"
      "allreduce,0,1048576,ring,simple,4,2,16,-1,-1\n"
      "allreduce,0,1048576,ring,simple,4,4,-1,-1,-1\n"
      "allgather,0,1024, pat ,ll,1,-1,-1,-1,1\n"
      "allgather,1025,4096,pat,ll,1,-1,-1,-1,-1\n"
      "alltoall,0,1,ring,ll,1,1,1\n"
      "broken,line\n",
      ImportForm::nccl);
  CHECK(chosen(made, Collective::allreduce, 65536, 8) == "double_binary_tree");
  // Between nodes the second line matches: hardware that is not here.
  CHECK(chosen(made, Collective::allreduce, 65536, 16, Reach::network) == "default");
  CHECK(is_remarked(made, "line 4", "nvls", "hardware"));
  CHECK(chosen(made, Collective::allreduce, 65537, 16, Reach::network) == "ring");
  CHECK(is_remarked(made, "line 5", "2 nodes", "any number of nodes"));
  CHECK(chosen(made, Collective::allreduce, 65537, 16, Reach::node) == "default");
  CHECK(chosen(made, Collective::allreduce, 65537, 32, Reach::network) == "default");
  CHECK(is_remarked(made, "line 6", "4,-1", "number of nodes is no condition"));
  CHECK(is_remarked(made, "line 7", "pat", "registered buffers"));
  CHECK(chosen(made, Collective::allgather, 4096, 8) == "pat");
  CHECK(is_remarked(made, "line 9", "alltoall", "no collective"));
  CHECK(is_remarked(made, "line 10", "broken", "8 to 10 fields"));
}

TEST_CASE("a form may be given, and is then meant", "[import]") {
  CHECK(!import_rules("CCL_ALLREDUCE=ring", ImportForm::openmpi).is_ok());
  CHECK(!import_rules("1\n2\n0\n", ImportForm::nccl).is_ok());
  CHECK(!import_rules("", std::nullopt).is_ok());
  CHECK(parse_import_form("ccl") == ImportForm::ccl);
  CHECK(!parse_import_form("mpich"));
}

}  // namespace
}  // namespace tutti::tool

// The program `tutti`: hands over to a sub-command.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/version.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/run/run.hpp"
#include "transports/registry.hpp"
#include "tutti_config.hpp"

namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view help;
};

constexpr Command kCommands[] = {
    {"run", tutti::run_command, "start the ranks of a job on this machine"},
    {"horovodrun", tutti::horovodrun_command, "start a script written for Horovod, with its own flags"},
    {"bench", tutti::tool::bench_command, "measure a collective, checked, over local ranks or inside a job"},
    {"info", tutti::tool::info_command,
     "what this build and machine have: transports, backends, algorithms, variables"},
    {"verify", tutti::tool::verify_command, "prove the algorithms' schedules for numbers of ranks"},
    {"explain", tutti::tool::explain_command,
     "say which algorithm a call runs and why, and the predicted cost of each"},
    {"doctor", tutti::tool::doctor_command,
     "say from the records of a job which rank did something differently first"},
    {"top", tutti::tool::top_command, "watch what each rank of a running job is doing"},
    {"trace", tutti::tool::trace_command, "put the traces of ranks into one, with aligned clocks"},
    {"tune", tutti::tool::tune_command,
     "measure a job and write rules for it, or judge the cost model on measured times"},
    {"schedule", tutti::tool::schedule_command, "print the schedule of an algorithm"},
    {"completion", tutti::tool::completion_command, "print a script with which bash completes these words"},
};

void print_help(std::FILE* to) {
  std::fputs(
      "Starts, measures, proves and explains collective communication between the ranks of a job.\n"
      "Usage: tutti <command> [options]\n\nCommands:\n",
      to);
  for (const Command& command : kCommands) {
    std::fprintf(to, "  %-10s %s\n", command.name.data(), command.help.data());
  }
  std::fputs(
      "\n`tutti <command> --help` says more about each; `tutti --version` prints version and features.\n",
      to);
}

// The first line is for programs.
void print_version() {
  std::printf("tutti %s\nbuild: %s\ntransports:", TUTTI_VERSION, std::string(tutti::binary_id()).c_str());
  for (const tutti::TransportEntry& entry : tutti::transport_entries())
    if (entry.missing.empty()) std::printf(" %s", std::string(entry.name).c_str());
  struct Feature {
    const char* name;
    bool is_there;
  };
  constexpr Feature kFeatures[] = {
      {"cuda", TUTTI_HAVE_CUDA == 1}, {"nccl", TUTTI_HAVE_NCCL == 1}, {"pmix", TUTTI_HAVE_PMIX == 1}};
  std::fputs("\nfeatures:", stdout);
  for (const Feature& feature : kFeatures) std::printf(" %s%s", feature.is_there ? "" : "no-", feature.name);
  std::puts("");
}

// Results that could not be written are no success.
int run(const Command& command, int argc, char** argv) {
  int status = 1;
  try {
    status = command.run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti %s: %s\n", command.name.data(), error.what());
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "tutti %s: cannot write all of its results to standard output\n", command.name.data());
  return status == 0 ? 1 : status;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  // A link of the name horovodrun is that command, so that scripts which call it stay as they are.
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view own_name = path.substr(path.rfind('/') + 1);
  if (own_name == "horovodrun") return run(*find_command(own_name), argc, argv);
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "--version") {
    print_version();
    return 0;
  }
  if (word == "--help" || word == "-h" || word == "help") {
    print_help(stdout);
    return 0;
  }
  if (const Command* const command = find_command(word)) return run(*command, argc - 1, argv + 1);
  if (word.empty()) {
    print_help(stderr);
  } else {
    std::vector<std::string> names;
    for (const Command& command : kCommands) names.emplace_back(command.name);
    const std::string nearest = tutti::tool::nearest_word(word, names);
    std::fprintf(stderr, "tutti: there is no command '%s'; %s%s`tutti --help` lists them\n", argv[1],
                 nearest.empty() ? "" : "did you mean ", nearest.empty() ? "" : (nearest + "? ").c_str());
  }
  return 2;
}

// `tutti run` alone, for tests that start jobs. On other hosts it is called as the tool is: with the word
// `run`.
#include <string_view>

#include "tools/cli/run/run.hpp"

int main(int argc, char** argv) {
  const bool has_word = argc > 1 && std::string_view(argv[1]) == "run";
  return tutti::run_command(has_word ? argc - 1 : argc, has_word ? argv + 1 : argv);
}

// `tutti completion`: hands out the script of bash beside the tool. Knows where it lies, nothing of its content.
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"

namespace tutti::tool {

int completion_command(int argc, char** argv) {
  ArgumentParser app(
      "Prints a script with which bash completes commands, options and collectives: eval \"$(tutti "
      "completion)\".\n"
      "The script asks this program for its help, so that it fits every version.",
      "tutti completion");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  const auto path = find_data_file("cli/completion.bash", "completion.bash");
  if (!path) {
    fmt::print(stderr, "tutti completion: {}\n", path.status().message());
    return 1;
  }
  std::ifstream file(*path);
  std::string line;
  while (std::getline(file, line)) fmt::print("{}\n", line);
  return 0;
}

}  // namespace tutti::tool

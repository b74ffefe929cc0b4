// `tutti trace`: puts the files of TUTTI_TRACE of all ranks into one.
#include <string>
#include <vector>

#include "runtime/base/trace_merge.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"

namespace tutti::tool {

int trace_command(int argc, char** argv) {
  std::string merged = "trace-all.json";
  std::vector<std::string> parts;
  ArgumentParser app(
      "Puts the files that TUTTI_TRACE has written on several machines into one, with aligned clocks. Each "
      "collective shows how long it waited for late ranks, and for which.",
      "tutti trace");
  app.footer("Example:\n  tutti trace -o all.json trace.*.json    # open all.json in ui.perfetto.dev");
  app.add_option("files", parts, "a file for each rank");
  app.add_option("-o,--output", merged, "the merged trace").show_default();
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  if (parts.empty())
    return usage_error(
        "trace", invalid_argument(
                     "expected the files of the ranks, which TUTTI_TRACE names: tutti trace trace.*.json"));
  const Status done = merge_trace_files(parts, merged);
  return done ? 0 : usage_error("trace", done);
}

}  // namespace tutti::tool

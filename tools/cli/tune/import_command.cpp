// The command line of `tutti tune --import`, and what it prints.
#include "tools/cli/tune/import_command.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/tune/import.hpp"

namespace tutti::tool {
namespace {

// A file, or the rules themselves, as in CCL_ALLREDUCE=ring.
Result<std::string> read_rules(const std::string& source) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(source, error)) {
    if (source.find('=') != std::string::npos) return source;
    return invalid_argument(fmt::format("--import '{}': neither a file nor NAME=RULES", source));
  }
  std::ifstream file(source, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return invalid_argument(fmt::format("--import '{}': cannot be read", source));
  return text;
}

void print_remarks(const Import& import) {
  if (import.remarks.empty()) return;
  std::size_t where_width = 5, what_width = 4;
  constexpr std::size_t kMostWidth = 44;
  for (const ImportRemark& remark : import.remarks) {
    where_width = std::max(where_width, std::min(remark.where.size(), kMostWidth));
    what_width = std::max(what_width, std::min(remark.what.size(), kMostWidth));
  }
  fmt::print(stderr, "{:<{}}  {:<{}}  {}\n", "where", where_width, "what", what_width,
             "not or not exactly taken over");
  for (const ImportRemark& remark : import.remarks)
    fmt::print(stderr, "{:<{}}  {:<{}}  {}\n", remark.where, where_width, remark.what, what_width,
               remark.why);
}

Json to_json(const Import& import, const std::string& text, const std::string& output) {
  Json remarks = Json::array();
  for (const ImportRemark& remark : import.remarks)
    remarks.push_back({{"where", remark.where}, {"what", remark.what}, {"why", remark.why}});
  return {{"form", to_string(import.form)},
          {"rules", import.rule_count},
          {"unmapped", remarks},
          {"output", output.empty() ? Json(nullptr) : Json(output)},
          {"tuning", json_of(text)}};
}

}  // namespace

bool is_import(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--import" || word.rfind("--import=", 0) == 0) return true;
  }
  return false;
}

int import_command(int argc, char** argv) {
  std::string source, form_name = "auto", output;
  bool is_json = false;
  ArgumentParser app(
      "Makes a tuning file of rules for another library. What has no counterpart here is listed and left to "
      "the default rules.",
      "tutti tune --import");
  app.footer(
      "Examples:\n"
      "  tutti tune --import tuned_rules.conf -o tuning.json          # Open MPI: "
      "coll_tuned_dynamic_rules_filename\n"
      "  tutti tune --import 'CCL_ALLREDUCE=recursive_doubling:0-8192;ring:8193-max'\n"
      "  tutti tune --import nccl_tuner.conf --form nccl --json");
  app.add_option("--import", source, "a file, or NAME=RULES").required();
  app.add_option("--form", form_name, "openmpi, ccl, nccl; auto: by its looks")
      .show_default()
      .one_of({"auto", "openmpi", "ccl", "nccl"});
  app.add_option("-o,--output", output, "the tuning file (default: standard output)");
  app.add_flag("--json", is_json, "the imported and the refused rules, for programs");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;

  const auto text = read_rules(source);
  if (!text) return usage_error("tune", text.status());
  auto import = import_rules(*text, parse_import_form(form_name));
  if (!import) return usage_error("tune", import.status().with_context("--import"));
  import->tuning.origin = fmt::format("tutti tune --import, of {}'s rules", to_string(import->form));
  const std::string tuning = to_text(import->tuning);
  if (!output.empty()) {
    if (const Status checked = check_writable("-o", output); !checked) return usage_error("tune", checked);
    std::ofstream file(output, std::ios::binary);
    file << tuning;
    file.close();
    if (!file) {
      fmt::print(stderr, "tutti tune: '{}' cannot be written\n", output);
      return 1;
    }
  }
  if (is_json) {
    fmt::print("{}\n", to_json(*import, tuning, output).dump(1));
    return 0;
  }
  if (output.empty()) fmt::print("{}", tuning);
  print_remarks(*import);
  return 0;
}

}  // namespace tutti::tool

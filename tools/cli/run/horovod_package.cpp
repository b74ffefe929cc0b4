// Asks an interpreter about the Python package. Knows no rank; see horovod_package.hpp.
#include "tools/cli/run/horovod_package.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

#include "runtime/base/version.hpp"
#include "tools/cli/run/remote.hpp"

namespace tutti {
namespace {

// Answers are lines that begin so: an import may print others.
constexpr std::string_view kMark = "tutti answers ";
// The folder in which we are is not where the ranks' interpreters look.
constexpr std::string_view kPreamble =
    "import os, sys\n"
    "if sys.path[:1] == ['']: del sys.path[0]\n"
    "def say(key, value): print('\\ntutti answers %s=%s' % (key, value), flush=True)\n";
constexpr std::string_view kFolderScript =
    "try:\n"
    "    import tutti\n"
    "    say('package', os.path.dirname(os.path.abspath(tutti.__file__)))\n"
    "except Exception as error: say('error', '%s: %s' % (type(error).__name__, ' "
    "'.join(str(error).split())))\n";
constexpr std::string_view kBuildScript =
    "import importlib\n"
    "def find(name):\n"
    "    try: return importlib.import_module('tutti.horovod' + name)\n"
    "    except Exception: return None\n"
    "def is_built(module, what):\n"
    "    try: return bool(getattr(module, what + '_built')())\n"
    "    except Exception: return False\n"
    "hvd = find('')\n"
    "say('tutti', int(hvd is not None))\n"
    "for name in ('tensorflow', 'torch', 'mxnet'): say(name, int(find('.' + name) is not None))\n"
    "for name in ('mpi', 'gloo', 'nccl', 'ddl', 'ccl'): say(name, int(hvd is not None and is_built(hvd, "
    "name)))\n";

using Answers = std::map<std::string, std::string, std::less<>>;

// Nothing if the interpreter cannot be started.
Answers ask(const std::string& interpreter, std::string_view script) {
  const std::string command = fmt::format("{} -c {} 2>/dev/null", quote_for_shell(interpreter),
                                          quote_for_shell(fmt::format("{}{}", kPreamble, script)));
  Answers answers;
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return answers;
  std::string text;
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    text.append(bytes.data(), got);
  ::pclose(pipe);
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!line.starts_with(kMark)) continue;
    line.remove_prefix(kMark.size());
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      answers[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return answers;
}

std::string interpreter_of(const RunOptions& options) {
  return is_python(options) ? options.program.front() : "python3";
}

Result<std::string> find_alias_folder(const std::string& interpreter) {
  const Answers answers = ask(interpreter, kFolderScript);
  if (const auto error = answers.find("error"); error != answers.end())
    return unsupported(fmt::format("{} cannot import tutti: {}", interpreter, error->second));
  const auto package = answers.find("package");
  if (package == answers.end()) return unsupported(fmt::format("{} cannot be asked for tutti", interpreter));
  std::string folder = package->second + "/alias";
  if (::access((folder + "/horovod/__init__.py").c_str(), R_OK) != 0)
    return unsupported(
        fmt::format("the tutti that {} imports has no {}/horovod; install a newer one", interpreter, folder));
  return folder;
}

}  // namespace

bool is_python(const RunOptions& options) {
  if (options.program.empty()) return false;
  const std::string_view path = options.program.front();
  return path.substr(path.rfind('/') + 1).starts_with("python");
}

Status use_horovod_alias(RunOptions& options) {
  Result<std::string> folder = find_alias_folder(interpreter_of(options));
  if (!folder) return folder.status();
  const char* const own = std::getenv("PYTHONPATH");
  std::string rest = own == nullptr ? "" : own;
  for (const ExportedVariable& variable : options.exported) {
    if (variable.name == "PYTHONPATH") rest = variable.value;
  }
  options.exported.push_back({"PYTHONPATH", rest.empty() ? *folder : fmt::format("{}:{}", *folder, rest)});
  return {};
}

std::string describe_horovod_build(const RunOptions& options) {
  const Answers answers = ask(interpreter_of(options), kBuildScript);
  const auto line = [&](std::string_view key, std::string_view title) {
    const auto found = answers.find(key);
    return fmt::format("    [{}] {}\n", found != answers.end() && found->second == "1" ? 'X' : ' ', title);
  };
  return fmt::format("tutti v{}, with the interface of Horovod v0.28.1:\n", version_text()) +
         "\nAvailable Frameworks:\n" + line("tensorflow", "TensorFlow") + line("torch", "PyTorch") +
         line("mxnet", "MXNet") + "\nAvailable Controllers:\n" + line("mpi", "MPI") + line("gloo", "Gloo") +
         line("tutti", "tutti") + "\nAvailable Tensor Operations:\n" + line("nccl", "NCCL") +
         line("ddl", "DDL") + line("ccl", "CCL") + line("mpi", "MPI") + line("gloo", "Gloo") +
         line("tutti", "tutti");
}

}  // namespace tutti

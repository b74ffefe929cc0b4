// The Python package's side of Horovod: where the folder lies that makes `import horovod` mean tutti, and what
// --check-build shows. Asks the interpreter, and knows nothing of the package but the names of its modules.
#pragma once

#include <string>

#include "runtime/base/status.hpp"
#include "tools/cli/run/run.hpp"

namespace tutti {

// Puts that folder first on the PYTHONPATH of the ranks. Errors: unsupported if the program's interpreter (python3,
// where the program is none) cannot import tutti, with its reason.
Status use_horovod_alias(RunOptions& options);
// Is the program an interpreter of Python?
bool is_python(const RunOptions& options);

// Horovod's table of frameworks, controllers and operations, as the package answers for them.
std::string describe_horovod_build(const RunOptions& options);

}  // namespace tutti

// Facts that a process knows of the launcher that started it, for people and for programs. Knows no launcher
// by name.
#pragma once

namespace tutti::tool {

// Prints it and returns the exit status: 1 where the launcher is not understood. Speaks with the launcher
// where it answers. Values of secrets appear nowhere.
int print_bootstrap(bool is_json);

}  // namespace tutti::tool

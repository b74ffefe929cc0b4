// `tutti tune --import`: rules of another library become a tuning file. Knows no form of them itself.
#pragma once

namespace tutti::tool {

// Is this the command line of an import?
bool is_import(int argc, char** argv);
int import_command(int argc, char** argv);

}  // namespace tutti::tool

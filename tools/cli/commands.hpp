// The sub-commands of the tool. Each takes what follows its name (argv[0] is the name) and returns the exit
// status.
#pragma once

namespace tutti::tool {

int bench_command(int argc, char** argv);
int completion_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int info_command(int argc, char** argv);
int schedule_command(int argc, char** argv);
int top_command(int argc, char** argv);
int trace_command(int argc, char** argv);
int tune_command(int argc, char** argv);
int verify_command(int argc, char** argv);

}  // namespace tutti::tool

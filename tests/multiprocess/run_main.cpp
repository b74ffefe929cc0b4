// `tutti run` alone, for tests that start jobs.
#include "tools/run/run.hpp"

int main(int argc, char** argv) { return tutti::run_command(argc, argv); }

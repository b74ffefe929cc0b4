// `tutti run` on several hosts: hands the job over to srun or mpiexec, or starts its parts by ssh.
// Knows command lines; processes are job.cpp's.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/run/run.hpp"

namespace tutti {

// The command that runs here for the ranks of one host; we write to its standard input.
struct RemotePart {
  std::string host;
  std::vector<std::string> command;
};

// The variables with which ranks on other hosts start, beside those of their shell: the settings of this
// environment, and what -x says.
std::map<std::string, std::string> forwarded_variables(const RunOptions& options);

// The commands that start the parts of a job by ssh, or by options.agent, which takes the same words: a host
// and one shell command. `self` is this program, at the same place on every host.
std::vector<RemotePart> parts_of(const RunOptions& options, const std::string& self,
                                 const std::string& job_id);
// One of them; `placed` are the hosts with their ranks.
RemotePart part_of(const RunOptions& options, const std::string& self, const std::string& job_id,
                   const std::vector<HostSlots>& placed, std::size_t index);

// The command line of another launcher that starts the whole job. Errors: unsupported if it is not installed.
Result<std::vector<std::string>> hand_over(const RunOptions& options);

// A word that a shell reads as it stands here.
std::string quote_for_shell(std::string_view word);

// This machine, by one of its names.
bool is_here(const std::string& host);

// "srun", "mpiexec" or "ssh": what the user named, else srun inside of an allocation of Slurm, else ssh.
std::string choose_way(const RunOptions& options);

}  // namespace tutti

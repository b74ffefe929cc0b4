// Sets the variables of a rank. Knows no process; see rank_environment.hpp.
#include "tools/cli/run/rank_environment.hpp"

#include <cstdlib>
#include <initializer_list>

#include "tools/cli/run/hosts.hpp"

namespace tutti {
namespace {

void set(std::initializer_list<const char*> names, int value) {
  for (const char* name : names) ::setenv(name, std::to_string(value).c_str(), 1);
}

}  // namespace

void set_rank_environment(const RunOptions& options, int rank, int local_rank, const std::string& job_id,
                          const std::string& secret, const std::string& elastic_folder) {
  const RunPart& part = options.part;
  const bool is_part = part.world_size > 0;
  for (const ExportedVariable& variable : options.exported)
    ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  const int size = is_part ? part.world_size : options.rank_count;
  set({"LOCAL_RANK", "TUTTI_LOCAL_RANK"}, local_rank);
  set({"LOCAL_WORLD_SIZE", "TUTTI_LOCAL_SIZE"}, options.rank_count);
  set({"RANK", "TUTTI_RANK"}, rank);
  set({"WORLD_SIZE", "TUTTI_SIZE"}, size);
  ::setenv("TUTTI_JOB_ID", job_id.c_str(), 1);
  ::setenv("TUTTI_ADDRESS", is_part ? part.address.c_str() : "local", 1);
  ::setenv("TUTTI_SECRET", secret.c_str(), 1);
  ::unsetenv("TUTTI_ELASTIC");  // of a job around this one
  if (!elastic_folder.empty()) {
    ::setenv("TUTTI_ELASTIC", elastic_folder.c_str(), 1);
    set({"TUTTI_MIN_RANKS"}, options.elastic.min_ranks);
    set({"HOROVOD_ELASTIC"}, 1);
    set({"HOROVOD_ELASTIC_TIMEOUT"}, static_cast<int>(options.elastic.timeout.count()));
  }
  if (!options.is_horovod) return;
  const CrossPlace cross = part.placement.empty()
                               ? CrossPlace{0, 1, "localhost"}
                               : find_cross_place(part.placement, part.first_rank, local_rank);
  set({"HOROVOD_RANK"}, rank);
  set({"HOROVOD_SIZE"}, size);
  set({"HOROVOD_LOCAL_RANK"}, local_rank);
  set({"HOROVOD_LOCAL_SIZE"}, options.rank_count);
  set({"HOROVOD_CROSS_RANK"}, cross.rank);
  set({"HOROVOD_CROSS_SIZE"}, cross.size);
  ::setenv("HOROVOD_HOSTNAME", cross.host.c_str(), 1);
}

}  // namespace tutti

// Lines between `tutti run` and its parts on other hosts in an elastic job: WORD SLOT NUMBER TEXT. Knows no process
// and no file.
//   to a part, on its standard input beside the names of signals
//     start SLOT NUMBER joins    a process in this slot, which joins the job that runs; without the last word it
//                                is one of the first ranks
//     leave SLOT, stop SLOT      as ElasticPlan::Steps
//     invitation 0 0 TEXT        for those that join
//     waiting 0 0 PROCESS        it waits on another host to join
//   from a part, among what it writes to its standard error
//     here 0 0                   it runs, and may be told to start ranks
//     waiting SLOT 0 PROCESS, member SLOT    as the files of elastic_folder.hpp
//     ended SLOT STATUS TEXT     STATUS: the exit status or -signal, TEXT: a sentence for people if it has failed
//     invitation 0 0 TEXT        written by a rank there
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct PartMessage {
  enum class Kind { start, leave, stop, invitation, waiting, member, ended, here };
  Kind kind = Kind::start;
  int slot = 0;
  int number = 0;  // start: of the rank, for people. ended: its exit status, or -signal
  std::string text = {};
  bool operator==(const PartMessage&) const = default;
};

// One line without its end.
std::string to_text(const PartMessage& message);
std::optional<PartMessage> parse_part_message(std::string_view line);
// As it stands among other output. The job's id keeps programs from writing one by mistake.
std::string mark_message(const PartMessage& message, std::string_view job_id);

// Takes the marked messages out of a part's output.
class PartMessageReader {
 public:
  explicit PartMessageReader(std::string_view job_id);
  // Returns what is no message; a message that has begun is kept for the next call.
  std::string feed(std::string_view bytes, std::vector<PartMessage>& messages);

 private:
  std::string mark_;
  std::string kept_;
};

}  // namespace tutti

// Starts and supervises the ranks of `tutti run`. Knows nothing of the programs that the ranks run.
// Nothing is left behind, whichever process dies. Each rank leads a process group of its own, so that a
// signal reaches its children, and dies with us (PR_SET_PDEATHSIG). Its orphans become our children
// (PR_SET_CHILD_SUBREAPER), which are killed at the end. If we are killed, our keeper ends the processes that
// ranks have started.
#include "tools/cli/run/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/cli/run/rank_environment.hpp"
#include "tools/cli/run/signals.hpp"

namespace tutti {
namespace {

constexpr int kNotExecutableStatus = 126;
// How long output is still read once every process of the job is gone; a pipe may be held by a stranger.
constexpr std::chrono::milliseconds kDrain{500};
// How often a job in the background looks whether it may read the terminal again.
constexpr int kTerminalPauseMs = 500;

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0'), hex(2 * bytes + 1, '\0');
  randombytes_buf(raw.data(), raw.size());
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  hex.pop_back();  // the terminating zero
  return hex;
}

std::optional<std::pair<OwnedFd, OwnedFd>> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  return std::pair(OwnedFd(ends[0]), OwnedFd(ends[1]));
}

}  // namespace

// -- start --------------------------------------------------------------------------------------------------

// In the child. Between fork and exec only this thread exists, so ordinary functions may be used.
void Job::exec_rank(int rank, pid_t parent, int in, int out, int err, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kSignalStatusBase + SIGKILL);  // it died before prctl could see it
  if (in >= 0) ::dup2(in, STDIN_FILENO);
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  if (err >= 0) ::dup2(err, STDERR_FILENO);
  if (!has_parts()) {
    set_rank_environment(options_, ranks_[static_cast<std::size_t>(rank)].number, rank, job_id_, secret_,
                         folder_.path());
    master_.set_environment();
    if (const Status bound = apply_binding(binding_, rank); !bound) {
      fmt::print(stderr, "tutti run: {}: {}\n", name_of(rank), bound.message());
      std::fflush(stderr);
      ::_exit(1);
    }
  }
  ::signal(SIGPIPE, SIG_DFL);
  const sigset_t supervised = supervised_signals();
  ::sigprocmask(SIG_UNBLOCK, &supervised, nullptr);
  const std::vector<std::string>& program =
      has_parts() ? parts_[static_cast<std::size_t>(rank)].command : options_.program;
  std::vector<char*> arguments;
  arguments.reserve(program.size() + 1);
  for (const std::string& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  if (::write(report, &error, sizeof error) != sizeof error) ::_exit(kNotExecutableStatus);
  ::_exit(kNotFoundStatus);
}

int Job::status_of(const SpawnError& error) {
  return error.error == ENOENT || error.error == ENOTDIR ? kNotFoundStatus : kNotExecutableStatus;
}

std::string Job::name_of(int member) const {
  if (has_parts()) return fmt::format("the part on host {}", parts_[static_cast<std::size_t>(member)].host);
  return fmt::format("rank {}", ranks_[static_cast<std::size_t>(member)].number);
}

// As a part we are told the secret first, in a line of our standard input.
Status Job::prepare() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  job_id_ = is_part() ? options_.part.job_id : random_hex(16);
  if (is_part()) {
    char byte = 0;
    while (secret_.size() < 256 && ::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') secret_ += byte;
    if (secret_.empty() || byte != '\n') return invalid_argument("--part: no secret came on standard input");
  } else {
    secret_ = random_hex(32);
  }
  if (!options_.hosts.empty()) TUTTI_RETURN_IF_ERROR(prepare_parts());
  master_ =
      is_part() ? MasterAddress::on_host(options_.part.address, job_id_) : MasterAddress::on_this_machine();
  TUTTI_RETURN_IF_ERROR(prepare_elastic());
  if (has_parts()) {
    ranks_.resize(parts_.size());
    return {};
  }
  if (!is_elastic_part()) TUTTI_RETURN_IF_ERROR(prepare_ranks());
  return prepare_binding();
}

Status Job::prepare_ranks() {
  for (int rank = 0; rank < options_.rank_count; ++rank)
    ranks_.emplace_back().number = options_.part.first_rank + rank;
  if (!options_.output_folder.empty()) {
    auto files = open_output_files(options_.output_folder, options_.part.first_rank, options_.rank_count,
                                   is_part() ? options_.part.world_size : options_.rank_count);
    if (!files) return files.status();
    copies_ = *std::move(files);
  }
  return {};
}

Status Job::prepare_parts() {
  std::array<char, 4096> self{};
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length <= 0) return internal_error("/proc/self/exe cannot be read");
  self_ = self.data();
  placed_ = options_.hosts;
  parts_ = parts_of(options_, self_, job_id_);
  part_inputs_.resize(parts_.size());
  has_answered_.resize(parts_.size());
  std::string names;
  for (const auto& [name, value] : forwarded_variables(options_)) names += " " + name;
  output_.say(
      fmt::format("tutti run: ranks on other hosts get from this environment:{} (-x adds more)", names));
  return {};
}

Status Job::prepare_binding() {
  auto binding = plan_bindings(options_);
  if (!binding) return binding.status();
  binding_ = *std::move(binding);
  std::array<char, 256> host{};
  static_cast<void>(::gethostname(host.data(), host.size() - 1));
  for (int rank = 0; rank < options_.rank_count && options_.reports_bindings; ++rank)
    fmt::print(stderr, "tutti run: {}, {}\n", host.data(),
               describe_binding(binding_, rank, options_.part.first_rank + rank));
  return {};
}

// The end of the standard input of a part is the end of whoever started it.
void Job::watch_parent() {
  std::array<char, 256> bytes;
  const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    if (!cause_) cause_ = Cause{-1, kSignalStatusBase + SIGTERM, true, "the job has ended elsewhere"};
    return end_job();
  }
  words_.append(bytes.data(), static_cast<std::size_t>(got));
  for (std::size_t end = 0; (end = words_.find('\n')) != std::string::npos; words_.erase(0, end + 1)) {
    const std::string line = words_.substr(0, end);
    if (const auto signal = signal_of_name(line)) {
      pass_on(*signal);
    } else if (const auto message = parse_part_message(line); message && is_elastic_part()) {
      obey(*message);
    }
  }
}

// Has more than 15 decisions because each system call may fail, between fork and exec in the child.
std::optional<Job::SpawnError> Job::spawn(int rank) {
  const auto failed = [](std::string what) { return SpawnError{errno, std::move(what)}; };
  auto report = make_pipe();
  std::optional<std::pair<OwnedFd, OwnedFd>> out, err, in;
  const bool has_streams = reads_output();
  const bool has_messages = has_parts() && plan_;
  if (has_streams) out = make_pipe();
  if (has_streams || has_messages) err = make_pipe();
  if (!report || (has_streams && !out) || ((has_streams || has_messages) && !err))
    return failed("cannot make a pipe");
  OwnedFd null_input;
  int input = -1;
  const bool joins = ranks_[static_cast<std::size_t>(rank)].joins;
  if (has_parts() || (rank == 0 && has_terminal_input_ && !joins)) {
    in = make_pipe();
    if (!in) return failed("cannot make a pipe");
    input = in->first.get();
  } else if (rank > 0 || joins || is_part() || ::isatty(STDIN_FILENO) == 1) {
    null_input = OwnedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null_input.is_open()) return failed("cannot open /dev/null");
    input = null_input.get();
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failed("cannot start a process");
  if (pid == 0) {
    exec_rank(rank, parent, input, out ? out->second.get() : -1, err ? err->second.get() : -1,
              report->second.get());
  }
  ::setpgid(pid, pid);  // the child does it too: whoever comes first
  ranks_[rank] = Rank{pid, true, joins, ranks_[rank].number};
  report->second.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(report->first.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    ranks_[rank].is_running = false;
    const std::string& program =
        has_parts() ? parts_[static_cast<std::size_t>(rank)].command[0] : options_.program[0];
    return SpawnError{error, fmt::format("cannot run '{}'", program)};
  }
  if (has_messages) output_.add_part(std::move(err->first), static_cast<std::size_t>(rank), job_id_);
  if (has_parts()) {
    const std::string line = secret_ + "\n";
    if (::write(in->second.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return failed("cannot write the secret");
    part_inputs_[static_cast<std::size_t>(rank)] = std::move(in->second);
    return std::nullopt;
  }
  if (has_streams) add_output(rank, std::move(out->first), std::move(err->first));
  if (in) {
    terminal_pipe_ = std::move(in->second);
    ::fcntl(terminal_pipe_.get(), F_SETFL, O_NONBLOCK);
  }
  return std::nullopt;
}

void Job::add_output(int rank, OwnedFd out, OwnedFd err) {
  const Rank& added = ranks_[static_cast<std::size_t>(rank)];
  const std::string prefix = options_.has_prefix ? fmt::format("[{}] ", added.number) : "";
  OutputFiles copies;
  if (!copies_.empty() && !added.joins) {
    copies = std::move(copies_[static_cast<std::size_t>(rank)]);
  } else if (!options_.output_folder.empty()) {
    auto files = open_output_files(options_.output_folder, added.number, 1,
                                   is_part() ? options_.part.world_size : options_.rank_count, added.joins);
    if (files) copies = std::move(files->front());
    if (!files) output_.say(fmt::format("tutti run: {}", files.status().message()));
  }
  for (const auto target : {RankOutput::to_stdout, RankOutput::to_stderr}) {
    output_.add(std::move(target == RankOutput::to_stdout ? out : err),
                LinePrefixer(prefix, output_.cursor_of(target), options_.has_times), target,
                std::move(copies[target]));
  }
}

// Ranks are in process groups of their own, which may not read the terminal: then we read it for rank 0. In
// the background we may not either, and rank 0 gets an empty input rather than a job that stops.
void Job::choose_stdin() {
  if (is_part() || has_parts()) return;
  has_terminal_input_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

int Job::run() {
  if (const Status status = prepare(); !status) {
    fmt::print(stderr, "tutti run: {}\n", status.message());
    return 1;
  }
  std::fflush(nullptr);
  choose_stdin();
  if (!has_parts()) {
    auto keeper = Keeper::start(job_id_);
    if (!keeper) {
      fmt::print(stderr, "tutti run: {}\n", keeper.status().message());
      return 1;
    }
    keeper_ = *std::move(keeper);
  }
  strangers_ = list_children();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto previous_pipe_handler = ::signal(SIGPIPE, SIG_IGN);
  // Ignored by whoever started us, it would stay ignored, and the kernel would reap the ranks unseen.
  const auto previous_child_handler = ::signal(SIGCHLD, SIG_DFL);
  const sigset_t supervised = supervised_signals();
  sigset_t previous_mask;
  ::sigprocmask(SIG_BLOCK, &supervised, &previous_mask);
  signals_ = OwnedFd(::signalfd(-1, &supervised, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.is_open()) {
    cause_ = Cause{-1, 1, false, fmt::format("cannot make a signalfd: {}", std::strerror(errno))};
    output_.say(fmt::format("tutti run: {}; no rank is started", cause_->text));
  }

  for (int rank = 0; rank < static_cast<int>(ranks_.size()) && !cause_; ++rank) {
    if (const auto error = spawn(rank)) {
      cause_ = Cause{rank, status_of(*error), false,
                     fmt::format("{}: {}: {}", name_of(rank), error->what, std::strerror(error->error))};
      output_.say("tutti run: " + cause_->text);
      end_job();
    } else if (options_.is_verbose) {
      output_.say(
          fmt::format("tutti run: {} has pid {}", name_of(rank), ranks_[static_cast<std::size_t>(rank)].pid));
    }
    if (has_parts() && plan_ && !cause_) start_first_ranks(static_cast<std::size_t>(rank));
  }
  if (is_elastic_part()) report({PartMessage::Kind::here});
  loop();
  kill_leftovers();
  output_.drain(Clock::now() + kDrain);
  end_if_nobody_reads();  // of the last lines
  keeper_.dismiss();

  ::sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
  ::signal(SIGCHLD, previous_child_handler);
  ::signal(SIGPIPE, previous_pipe_handler);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  return cause_ ? cause_->exit_status : 0;
}

// -- while it runs ------------------------------------------------------------------------------------------

bool Job::has_running_rank() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.is_running; });
}

int Job::poll_timeout() const {
  auto left = output_.time_to_prompt();
  if (kill_at_) {
    const auto to_kill = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    left = std::max(std::min(to_kill, left.value_or(to_kill)), std::chrono::milliseconds(0));
  }
  if (options_.is_elastic() && !cause_) left = std::min(time_to_tick(), left.value_or(time_to_tick()));
  if (!left && terminal_pipe_.is_open() && !may_read_terminal()) return kTerminalPauseMs;
  return left ? static_cast<int>(left->count()) : -1;
}

// In the background a read of the terminal would stop us.
bool Job::may_read_terminal() const { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

void Job::loop() {
  std::vector<pollfd> fds;
  while (!is_over()) {
    fds.clear();
    fds.push_back({signals_.get(), POLLIN, 0});
    const bool reads_input = is_part() ? !kill_at_ : terminal_pipe_.is_open() && may_read_terminal();
    fds.push_back({reads_input ? STDIN_FILENO : -1, POLLIN, 0});
    fds.push_back({discovery_ ? discovery_->fd() : -1, POLLIN, 0});
    output_.append_polls(fds);
    if (::poll(fds.data(), fds.size(), poll_timeout()) < 0) {
      for (pollfd& fd : fds) fd.revents = 0;
      if (errno != EINTR) {
        output_.say(fmt::format("tutti run: poll: {}", std::strerror(errno)));
        end_job();
      }
    }
    // Output first: what a rank printed before it died belongs before the line that says so.
    output_.read(fds.data() + 3);
    output_.show_prompts();
    end_if_nobody_reads();
    read_messages();
    if (fds[1].revents != 0) is_part() ? watch_parent() : pump_stdin();
    if (fds[2].revents != 0) read_discovery();
    if (fds[0].revents != 0) handle_signals();
    serve_elastic();
    if (kill_at_ && Clock::now() >= *kill_at_) {
      signal_ranks(SIGKILL);
      kill_at_.reset();
    }
  }
}

// As a pipeline does: nobody reads the result, so the job ends.
void Job::end_if_nobody_reads() {
  const int error = output_.stdout_error();
  if (error == 0 || cause_) return;
  if (error == EPIPE) {
    cause_ = Cause{-1, kSignalStatusBase + SIGPIPE, true, "standard output was closed"};
  } else {
    cause_ = Cause{-1, 1, false, fmt::format("cannot write to standard output: {}", std::strerror(error))};
    output_.say("tutti run: " + cause_->text);
  }
  end_job();
}

// Terminal input in pieces that the pipe takes at once. Input is lost only if rank 0 leaves a full pipe
// unread while a person types 64 KiB.
void Job::pump_stdin() {
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0 ||
      (::write(terminal_pipe_.get(), bytes.data(), static_cast<std::size_t>(got)) < 0 && errno != EAGAIN)) {
    terminal_pipe_.reset();
  } else if (bytes[static_cast<std::size_t>(got) - 1] == '\n') {
    output_.note_typed_newline();
  }
}

void Job::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGTSTP) {
      suspend();
      continue;
    }
    pass_on(signal);
    // TERM, or INT for the second time, means the end even for ranks that ignore it.
    const bool must_end = signal == SIGTERM || (signal == SIGINT && was_interrupted_);
    was_interrupted_ = was_interrupted_ || signal == SIGINT;
    if (must_end && !kill_at_) kill_at_ = Clock::now() + options_.grace;
    if (must_end && is_elastic_part() && !cause_)
      cause_ = Cause{-1, kSignalStatusBase + signal, true, "this part was told to end"};
  }
  reap();
}

void Job::pass_on(int signal) {
  if (!has_parts()) return signal_ranks(signal);
  const std::string line = fmt::format("{}\n", name_of_signal(signal));
  for (const OwnedFd& input : part_inputs_) {
    // A part that has ended does not read it.
    if (input.is_open() && ::write(input.get(), line.data(), line.size()) < 0) continue;
  }
}

// Ctrl-Z reaches us and not the ranks, which are in groups of their own. Returns when somebody continues us.
void Job::suspend() {
  pass_on(SIGSTOP);
  const Clock::time_point stopped = Clock::now();
  ::raise(SIGSTOP);
  if (kill_at_) *kill_at_ += Clock::now() - stopped;
  pass_on(SIGCONT);
}

int run_job(RunOptions& options) {
  for (;;) {
    Job job(options);
    const int status = job.run();
    if (!job.unreachable_host()) return status;
    drop_host(options, *job.unreachable_host());
  }
}

}  // namespace tutti

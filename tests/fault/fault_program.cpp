// The ranks of jobs that something happens to: one of them misbehaves, or all of them compute until they are told to
// end. Prints the errors of its calls.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_output.hpp"
#include "tutti/tutti.hpp"

using namespace std::chrono_literals;
using tutti::CommGroup;
using tutti::test::print;

namespace {

void add_up(const CommGroup& group) {
  std::vector<int> values(1000, 1);
  group.allreduce(std::span(values));
  if (values[7] != group.size()) throw tutti::Error(tutti::StatusCode::internal, -1, "wrong sum");
}

// SIGUSR1 from the test.
void wait_to_be_told() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int signal = 0;
  ::sigwait(&set, &signal);
}

// The last rank misbehaves before the seventh operation of a group whose ranks count backwards.
int misbehave(const std::string& how) {
  const CommGroup world = tutti::init();
  std::vector<int> backwards;
  for (int rank = world.size() - 1; rank >= 0; --rank) backwards.push_back(rank);
  const CommGroup group = world.create(backwards), other = world.create(backwards, "other");
  for (int i = 0; i < 6; ++i) add_up(group);
  print("ready " + std::to_string(::getpid()));
  const std::map<std::string, std::function<void()>> ways = {
      {"late", wait_to_be_told},
      {"frozen", wait_to_be_told},
      {"stop", [] { ::raise(SIGSTOP); }},
      {"kill", [] { ::raise(SIGKILL); }},
      {"abort", [] { std::abort(); }},
      {"exit", [] { ::_exit(3); }},
      {"elsewhere",
       [&] {
         // Another thread could call what the others wait for: they miss this rank at their deadline only.
         std::thread([&] { world.create(std::vector<int>{world.rank()}); }).join();
         std::this_thread::sleep_for(500ms);  // the deadline of the others comes first
         std::vector<float> values(4);
         other.broadcast(std::span(values), 1);
       }},
  };
  const auto error = tutti::test::error_of([&] {
    if (world.rank() == world.size() - 1) {
      wait_to_be_told();
      ways.at(how)();
    }
    add_up(group);
  });
  print(error ? "caught peer " + std::to_string(error->peer()) + ": " + error->what() : "caught nothing");
  return 0;
}

// One rank makes another call than the others: what both do, blocking or submitted.
using MakeCall = std::function<tutti::Work(const CommGroup&, const CommGroup&, std::vector<int>&)>;
struct Mismatch {
  const char* name;
  MakeCall usual, deviating;
};

const std::vector<Mismatch>& mismatches() {
  using tutti::Dtype;
  using tutti::Op;
  static const std::vector<Mismatch> kAll = {
      {"count",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 98, Dtype::i32, Op::sum);
       }},
      {"dtype",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::f32, Op::sum);
       }},
      {"op",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::max);
       }},
      {"broadcast root",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.ibroadcast(v.data(), 100, Dtype::i32, 0);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.ibroadcast(v.data(), 100, Dtype::i32, 1);
       }},
      {"reduce root",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.ireduce(v.data(), v.data(), 100, Dtype::i32, Op::sum, 0);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.ireduce(v.data(), v.data(), 100, Dtype::i32, Op::sum, 1);
       }},
      {"collective",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         return g.ibroadcast(v.data(), 100, Dtype::i32, 0);
       }},
      {"order",
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         g.ibroadcast(v.data(), 100, Dtype::i32, 0).wait();
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup&, std::vector<int>& v) {
         g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum).wait();
         return g.ibroadcast(v.data(), 100, Dtype::i32, 0);
       }},
      {"group",
       [](const CommGroup& g, const CommGroup& other, std::vector<int>& v) {
         g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum).wait();
         return other.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       },
       [](const CommGroup& g, const CommGroup& other, std::vector<int>& v) {
         other.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum).wait();
         return g.iallreduce(v.data(), v.data(), 100, Dtype::i32, Op::sum);
       }},
  };
  return kAll;
}

// Each case in a group of its own. A rank that hears from nobody in the differing call finds out in the next one.
int mismatch() {
  const CommGroup world = tutti::init();
  std::vector<int> all;
  for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
  for (const Mismatch& mismatch : mismatches()) {
    for (const bool is_submitted : {false, true}) {
      const std::string tag = std::string(mismatch.name) + (is_submitted ? " submitted" : "");
      const CommGroup group = world.create(all, tag), other = world.create(all, tag + ", other");
      std::vector<int> values(1000), others(100);
      const auto error = tutti::test::error_of([&] {
        // The failure of the next call may overtake the end of this one on a rank that gets no CPU in between.
        add_up(group);
        const bool deviates = world.rank() == world.size() - 1;
        const tutti::Work work = (deviates ? mismatch.deviating : mismatch.usual)(group, other, values);
        if (!is_submitted) work.wait();
        const tutti::Work next = group.iallreduce(std::span(others));
        work.wait();
        next.wait();
      });
      const bool is_right = error && error->code() == tutti::StatusCode::mismatch;
      print((is_right ? "named " : "NOT NAMED ") + tag + ": " + (error ? error->what() : "silent"));
      world.barrier();
    }
  }
  print("all cases");
  return 0;
}

// Operations of many kinds, until SIGUSR1 reaches the last rank. Wrong results are told from failures.
int compute() {
  const CommGroup world = tutti::init();
  print("ready " + std::to_string(::getpid()));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  const timespec none{};
  std::size_t operations = 0;
  const auto error = tutti::test::error_of([&] {
    for (unsigned turn = 0;; ++turn) {
      const std::size_t count = std::size_t{1} << (turn * 5 % 19);
      std::vector<double> values(count, 1), gathered(count * static_cast<std::size_t>(world.size()), -1);
      world.allreduce(std::span(values));
      world.allgather(std::span<const double>(values), std::span(gathered));
      world.broadcast(std::span(values), static_cast<int>(turn) % world.size());
      if (values[count / 2] != world.size() || gathered.back() != world.size())
        throw tutti::Error(tutti::StatusCode::internal, -1, "WRONG RESULT");
      operations += 3;
      std::vector<int> end{world.rank() == world.size() - 1 &&
                           ::sigtimedwait(&set, nullptr, &none) == SIGUSR1};
      world.broadcast(std::span(end), world.size() - 1);
      if (end[0] != 0) return;
    }
  });
  print("after " + std::to_string(operations) + " operations");
  print(error ? "caught peer " + std::to_string(error->peer()) + ": " + error->what() : "ended in peace");
  return error ? 3 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &told, nullptr);  // before the library has threads
  const std::string how = argc > 1 ? argv[1] : "";
  try {
    if (how == "mismatch") return mismatch();
    return how == "compute" ? compute() : misbehave(how);
  } catch (const tutti::Error& error) {
    print("start failed, peer " + std::to_string(error.peer()) + ": " + error.what());
    return 4;
  } catch (const std::bad_alloc&) {
    print("out of memory");
    return 5;
  }
}

// Messages with tags and receives from any source: which message goes to which receive, and what happens when
// none does. Through the public interface, with threads as ranks; knows no transport but by name.
#include <atomic>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/thread_ranks.hpp"

using namespace tutti;
using namespace std::chrono_literals;

namespace {

using Numbers = std::vector<std::int32_t>;

// A message may be lost if its sender leaves the job before the receiver has polled.
Verdict stay(const CommGroup& group, Verdict verdict = {}) {
  group.barrier();
  return verdict;
}

// The error that `body` ends with, as "code: text"; and whether that is what was expected.
Verdict expect_error(StatusCode code, std::initializer_list<std::string> parts,
                     const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.code() != code) return "another code, with: " + text;
    for (const std::string& part : parts) {
      if (text.find(part) == std::string::npos)
        return std::string("no \"").append(part).append("\" in: ").append(text);
    }
    return {};
  }
  return "no error";
}

}  // namespace

TEST_CASE("tags are independent, and messages of one tag arrive in order", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const std::size_t count = GENERATE(1U, 3000U, 200000U);
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          if (group.rank() == 0) {
            const Numbers a(count, 1), b(count, 2), c(count, 3), d(count, 4);
            const std::vector<Work> works = {group.isend(std::span(a), 1, 1), group.isend(std::span(b), 1, 2),
                                             group.isend(std::span(c), 1, 1), group.isend(std::span(d), 1)};
            for (const Work& work : works) work.wait();
            return stay(group, works[0].source() == -1 ? "" : "a send has a source");
          }
          // The tag that was sent last is received first.
          const std::vector<std::pair<int, std::int32_t>> wanted = {{0, 4}, {2, 2}, {1, 1}, {1, 3}};
          for (const auto& [tag, value] : wanted) {
            Numbers got(count, -1);
            if (group.recv(std::span(got), 0, tag) != 0) return "another source";
            if (got != Numbers(count, value)) return "not the message of tag " + std::to_string(tag);
          }
          return stay(group);
        }) == "");
}

TEST_CASE("a receive from any source takes what comes, also while its sender computes", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const int tag = GENERATE(0, 5);
  std::atomic<bool> is_over{false};
  CHECK(with_ranks(4, [&](CommGroup& group) -> Verdict {
          constexpr int kRounds = 20;
          if (group.rank() != 0) {
            for (int i = 0; i < kRounds; ++i) {
              const Numbers mine{group.rank(), i};
              group.send(std::span(mine), 0, tag);
            }
            return becomes_true(is_over) ? "" : "the receiver did not end";
          }
          std::map<int, int> next;
          Verdict verdict;
          for (int i = 0; i < 3 * kRounds && verdict.empty(); ++i) {
            Numbers got(2, -1);
            const int source = group.recv(std::span(got), kAnySource, tag);
            if (got[0] != source || got[1] != next[source]++)
              verdict = "message " + std::to_string(got[1]) + " of rank " + std::to_string(got[0]) +
                        ", said to be from " + std::to_string(source);
          }
          is_over = true;
          return verdict;
        }) == "");
}

TEST_CASE("receives of one pair stand in line with those from any source", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const int tag = GENERATE(0, 1);
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          Numbers go{0};
          if (group.rank() == 1) {
            Numbers first(1), any(1), pair(1), last(1);
            const Work first_work = group.irecv(std::span(first), 0, tag);
            const Work any_work = group.irecv(std::span(any), kAnySource, tag);
            const Work pair_work = group.irecv(std::span(pair), 0, tag);
            const Work last_work = group.irecv(std::span(last), kAnySource, tag);
            group.send(std::span(go), 0, 9);  // three messages of rank 0
            for (const Work& work : {first_work, any_work, pair_work}) work.wait();
            if (last_work.test() || last_work.source() != -1) return "complete too early";
            group.send(std::span(go), 2, 9);  // and one of rank 2
            last_work.wait();
            if (first[0] != 10 || any[0] != 11 || pair[0] != 12 || last[0] != 20) return "another order";
            return stay(group, any_work.source() == 0 && last_work.source() == 2 ? "" : "another source");
          }
          group.recv(std::span(go), 1, 9);
          for (std::int32_t i = 0; i < (group.rank() == 0 ? 3 : 1); ++i) {
            const Numbers mine{10 * (group.rank() / 2 + 1) + i};
            group.send(std::span(mine), 1, tag);
          }
          return stay(group);
        }) == "");
}

TEST_CASE("a receive from any source that comes first leaves its rivals the rest", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  CHECK(with_ranks(3, [](CommGroup& group) -> Verdict {
          if (group.rank() != 1) {
            // Rank 0 sends when rank 1 has rank 2's message.
            Numbers mine{group.rank()};
            if (group.rank() == 0) group.recv(std::span(mine), 1, 1);
            mine[0] = group.rank();
            group.send(std::span(mine), 1);
            return stay(group);
          }
          Numbers any(1, -1), pair(1, -1), go{0};
          const Work any_work = group.irecv(std::span(any), kAnySource);
          const Work pair_work = group.irecv(std::span(pair), 0);
          any_work.wait();
          group.send(std::span(go), 0, 1);
          pair_work.wait();
          return stay(group, any[0] == 2 && any_work.source() == 2 && pair[0] == 0 ? "" : "mixed up");
        }) == "");
}

TEST_CASE("messages between all ranks may be submitted in any order", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")},
                            {"TUTTI_PROGRESS_THREADS", GENERATE(as<std::string>(), "0", "1")}};
  const int tag = GENERATE(0, 1);
  const std::size_t count = GENERATE(10U, 100000U);
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          std::vector<Numbers> out, in(3, Numbers(count, -1));
          std::vector<Work> works;
          for (int peer = 0; peer < 3; ++peer) out.emplace_back(count, 10 * group.rank() + peer);
          // Round the ring everybody sends first, far more than anything holds, and then something else that
          // the next rank wants before it receives any of it: there is no grouped start, and no need of one.
          const int to = (group.rank() + 1) % 3, from = (group.rank() + 2) % 3;
          std::vector<Numbers> ring(20, Numbers(count, group.rank())), got(20, Numbers(count, -1));
          Numbers first(count, group.rank()), sum(count, 1);
          for (Numbers& vector : ring) works.push_back(group.isend(std::span(vector), to, tag));
          works.push_back(group.isend(std::span(first), to, 2));
          works.push_back(group.iallreduce(std::span(sum)));
          const Numbers wanted(count, from);
          Numbers came(count, -1);
          group.recv(std::span(came), from, 2);
          for (Numbers& vector : got) works.push_back(group.irecv(std::span(vector), from, tag));
          wait_all(works);
          works.clear();
          if (came != wanted || sum != Numbers(count, 3)) return "wrong result beside the ring";
          for (const Numbers& vector : got) {
            if (vector != wanted) return "wrong message in the ring";
          }
          const auto submit = [&](int peer, bool is_send) {
            const auto at = static_cast<std::size_t>(peer);
            if (peer == group.rank()) return;
            works.push_back(is_send ? group.isend(std::span(out[at]), peer, tag)
                                    : group.irecv(std::span(in[at]), peer, tag));
          };
          for (int i = 0; i < 3; ++i) {
            submit(i, group.rank() != 1);
            submit(2 - i, group.rank() == 1);
          }
          wait_all(works);
          for (int peer = 0; peer < 3; ++peer) {
            const std::int32_t value = peer == group.rank() ? -1 : 10 * peer + group.rank();
            if (in[static_cast<std::size_t>(peer)] != Numbers(count, value)) return "wrong message";
          }
          Numbers four(4);
          return expect_error(StatusCode::aborted, {"enough of it"}, [&] {
            group.barrier();
            works = {group.irecv(std::span(four), (group.rank() + 1) % 3, 8), group.ibarrier()};
            if (group.rank() == 0) group.abort("enough of it");
            wait_all(works);
          });
        }) == "");
}

TEST_CASE("what nobody receives blocks nothing, and ends with its group", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          std::atomic<bool> is_done{false};
          Verdict said;
          {
            CommGroup part = group.split(0);
            Numbers vector(1000, 1), other(1000, 2), sum(1000, group.rank());
            const int peer = 1 - group.rank();
            const Work unmatched_send = part.isend(std::span(vector), peer, 3);
            const Work unmatched_recv = part.irecv(std::span(other), kAnySource, 4);
            part.irecv(std::span(other), peer, 5).on_complete([&](const Error* error) {
              said = error == nullptr ? "no error" : error->what();
              is_done = true;
            });
            for (int i = 0; i < 50; ++i) {
              part.allreduce(std::span(sum), Op::max);
              if (sum[0] != 1) return "wrong result";
            }
            group.barrier();  // so that no rank ends the part while the other uses it
            if (unmatched_send.test() || unmatched_recv.test()) return "complete without the other side";
          }
          if (!becomes_true(is_done)) return "a receive outlives its group";
          return said == "no error" ? said : "";
        }) == "");
}

TEST_CASE("a wrong tag or peer is refused, by name", "[tagged]") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          Numbers buffer(1);
          const int peer = 1 - group.rank();
          const std::vector<std::pair<std::string, std::function<void()>>> wrong = {
              {"send: tag: -3 is negative", [&] { group.send(std::span(buffer), peer, -3); }},
              {"recv: tag: -1 is negative", [&] { group.recv(std::span(buffer), kAnySource, -1); }},
              {"send: peer: -1 is no rank", [&] { group.send(std::span(buffer), kAnySource, 1); }},
              {"recv: peer: 2 is no rank", [&] { group.recv(std::span(buffer), 2, 1); }},
              {"recv: peer: -2 is no rank", [&] { group.recv(std::span(buffer), -2); }}};
          for (const auto& [text, body] : wrong) {
            if (Verdict v = expect_error(StatusCode::invalid_argument, {text}, body); !v.empty()) return v;
          }
          const CommGroup alone = group.split(group.rank());
          return expect_error(StatusCode::invalid_argument, {"no other rank to receive from"},
                              [&] { alone.recv(std::span(buffer), kAnySource); });
        }) == "");
}

TEST_CASE("another count is a mismatch on both sides", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const int tag = GENERATE(0, 2);
  const int source = GENERATE(0, kAnySource);
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          Numbers four(4, 1), sum(1);
          return expect_error(StatusCode::mismatch, {"different calls", "send_recv"}, [&] {
            if (group.rank() == 0) {
              group.send(std::span(four).first(3), 1, tag);
            } else {
              group.recv(std::span(four), source, tag);
            }
            group.allreduce(std::span(sum));
          });
        }) == "");
}

TEST_CASE("at the deadline the error says who could have sent", "[tagged]") {
  const int tag = GENERATE(0, 3);
  const bool is_attended = GENERATE(true, false);
  std::atomic<bool> is_over{false};
  CHECK(with_ranks(
            3,
            [&](CommGroup& group) -> Verdict {
              if (group.rank() != 1) return becomes_true(is_over) ? "" : "it did not end";
              Numbers got(4);
              Verdict verdict;
              const std::string what = tag == 0 ? "from any rank (" : "from any rank, tag 3 (";
              const std::initializer_list<std::string> parts = {what, "ranks 0, 2 could still send it"};
              if (is_attended) {
                verdict = expect_error(StatusCode::timeout, parts,
                                       [&] { group.recv(std::span(got), kAnySource, tag); });
              } else {
                std::atomic<bool> is_done{false};
                group.irecv(std::span(got), kAnySource, tag).on_complete([&](const Error* error) {
                  verdict = expect_error(StatusCode::timeout, parts, [&] {
                    if (error != nullptr) throw Error(*error);
                  });
                  is_done = true;
                });
                if (!becomes_true(is_done)) verdict = "it never ended";
              }
              is_over = true;
              return verdict;
            },
            1500ms) == "");
}

TEST_CASE("at the deadline a send says that nobody has received it, and names what was", "[tagged]") {
  CHECK(with_ranks(
            2,
            [&](CommGroup& group) -> Verdict {
              Numbers four(4), other(4);
              if (group.rank() == 0) {
                const Work sent = group.isend(std::span(four), 1, 6);
                return expect_error(StatusCode::timeout, {"tag"}, [&] { sent.wait(); });
              }
              return expect_error(StatusCode::timeout, {"tag"}, [&] { group.recv(std::span(other), 0, 7); });
            },
            1500ms) == "");
}

TEST_CASE("waiting for ranks that are all gone fails", "[tagged]") {
  const Variables variables{{"TUTTI_TRANSPORTS", GENERATE(as<std::string>(), "inproc", "shm", "tcp")}};
  const int tag = GENERATE(0, 3);
  const int source = GENERATE(1, kAnySource);
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          CommGroup part = group.split(0);
          Numbers got(4, 1);
          if (group.rank() != 0) {
            part.send(std::span(got), 0, tag);
            if (tag == 0) group.barrier();  // what was sent before its sender left is received afterwards
            part = {};
            group.barrier();
            return {};
          }
          if (tag == 0) group.barrier();
          for (int i = 0; i < 2; ++i) part.recv(std::span(got), source == kAnySource ? source : 2 - i, tag);
          Verdict verdict = expect_error(StatusCode::peer_failed, {"rank 1 has left the group"},
                                         [&] { part.recv(std::span(got), source, tag); });
          group.barrier();
          return verdict;
        }) == "");
}

TEST_CASE("twenty thousand tags, received in the order in which they were sent, and backwards", "[tagged]") {
  constexpr int kTags = 20000;
  const bool is_backwards = GENERATE(false, true);
  const bool is_sent_first = GENERATE(false, true);
  CHECK(with_ranks(2, [&](CommGroup& group) -> Verdict {
          Numbers values(kTags, -1);
          std::vector<Work> works;
          if (is_sent_first != (group.rank() == 1)) group.barrier();
          for (int i = 0; i < kTags; ++i) {
            const int tag = group.rank() == 0 && is_backwards ? kTags - i : i + 1;
            std::int32_t& value = values[static_cast<std::size_t>(tag) - 1];
            if (group.rank() == 1) value = 3 * tag;
            works.push_back(group.rank() == 1 ? group.isend(std::span(&value, 1), 0, tag)
                                              : group.irecv(std::span(&value, 1), kAnySource, tag));
          }
          if (is_sent_first == (group.rank() == 1)) group.barrier();
          wait_all(works);
          for (int tag = 1; tag <= kTags; ++tag) {
            if (values[static_cast<std::size_t>(tag) - 1] != 3 * tag) return "tag " + std::to_string(tag);
          }
          return stay(group);
        }) == "");
}

TEST_CASE("an abort ends what is not matched", "[tagged]") {
  CHECK(with_ranks(2, [](CommGroup& group) -> Verdict {
          Numbers got(4);
          if (group.rank() == 1) {
            // Rank 0 mostly waits by then; too early only tests less.
            std::this_thread::sleep_for(20ms);
            group.abort("enough of it");
            return {};
          }
          return expect_error(StatusCode::aborted, {"enough of it"},
                              [&] { group.recv(std::span(got), kAnySource, 1); });
        }) == "");
}

TEST_CASE("a callback may receive the next message", "[tagged]") {
  const int tag = GENERATE(0, 1);
  CHECK(with_ranks(3, [&](CommGroup& group) -> Verdict {
          constexpr int kMessages = 20;  // of each rank
          if (group.rank() != 0) {
            for (int i = 0; i < kMessages; ++i) {
              const Numbers mine{group.rank()};
              group.send(std::span(mine), 0, tag);
            }
            return stay(group);
          }
          Numbers got(1);
          Work work;
          int left = 2 * kMessages;
          Verdict verdict;
          std::atomic<bool> is_done{false};
          std::function<void(const Error*)> on_received;
          const auto receive = [&] {
            work = group.irecv(std::span(got), kAnySource, tag);
            work.on_complete(on_received);
          };
          on_received = [&](const Error* error) {
            if (error != nullptr) verdict = error->what();
            if (--left > 0 && error == nullptr) return receive();
            is_done = true;
          };
          receive();
          return stay(group, becomes_true(is_done) ? verdict : "the chain does not end");
        }) == "");
}

// Which message goes to which receive, without any group. The rule is checked against the plainest statement
// of it over random sequences. Knows no operation: addresses stand for them.
#include <array>
#include <deque>
#include <random>
#include <vector>

#include "runtime/scheduler/message_matcher.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using Message = MessageMatcher::Message;
using Receive = MessageMatcher::Receive;

namespace {

constexpr std::uint32_t kAny = kFromAnyRank;

// Stands for the operation of a receive; nobody looks behind the address.
Operation* address(std::size_t number) {
  static std::array<char, 128> places;
  return reinterpret_cast<Operation*>(&places[number]);
}

}  // namespace

TEST_CASE("messages of one source and tag match in order, and tags are independent") {
  MessageMatcher matcher;
  CHECK_FALSE(matcher.announce({1, 7, 10}));
  CHECK_FALSE(matcher.announce({1, 8, 11}));
  CHECK_FALSE(matcher.announce({1, 7, 12}));
  CHECK(matcher.post({1, 8, address(0)}) == Message{1, 8, 11});
  CHECK(matcher.post({1, 7, address(1)}) == Message{1, 7, 10});
  CHECK_FALSE(matcher.post({2, 7, address(2)}));  // of another source
  CHECK(matcher.post({1, 7, address(3)}) == Message{1, 7, 12});
  CHECK(matcher.announced().empty());
  CHECK(matcher.announce({2, 7, 13}) == Receive{2, 7, address(2)});
  CHECK(matcher.posted().empty());
}

TEST_CASE("a receive from any source stands in line with the others") {
  MessageMatcher matcher;
  CHECK_FALSE(matcher.post({2, 5, address(0)}));
  CHECK_FALSE(matcher.post({kAny, 5, address(1)}));
  CHECK_FALSE(matcher.post({3, 5, address(2)}));
  CHECK(matcher.waits_for_any(5));
  CHECK_FALSE(matcher.waits_for_any(0));
  CHECK_FALSE(matcher.announce({3, 6, 1}));  // of a tag that nobody receives
  CHECK(matcher.announce({3, 5, 2}) == Receive{kAny, 5, address(1)});
  CHECK_FALSE(matcher.waits_for_any(5));
  CHECK(matcher.announce({3, 5, 3}) == Receive{3, 5, address(2)});
  CHECK(matcher.announce({2, 5, 4}) == Receive{2, 5, address(0)});
  CHECK(matcher.post({kAny, 6, address(4)}) == Message{3, 6, 1});
}

TEST_CASE("only receives in front of which none from any source is posted have no rival") {
  MessageMatcher matcher;
  CHECK_FALSE(matcher.post({kAny, 0, address(0)}));
  CHECK_FALSE(matcher.post({1, 0, address(1)}));
  CHECK_FALSE(matcher.post({kAny, 4, address(2)}));  // another tag's
  CHECK_FALSE(matcher.post({2, 0, address(3)}));
  CHECK_FALSE(matcher.post({kAny, 0, address(4)}));
  CHECK_FALSE(matcher.post({3, 0, address(5)}));
  CHECK_FALSE(matcher.take_unrivalled(0));
  CHECK(matcher.withdraw({kAny, 0, address(0)}));
  CHECK_FALSE(matcher.withdraw({kAny, 0, address(0)}));
  CHECK(matcher.take_unrivalled(0) == Receive{1, 0, address(1)});
  CHECK(matcher.take_unrivalled(0) == Receive{2, 0, address(3)});
  CHECK_FALSE(matcher.take_unrivalled(0));
  CHECK(matcher.posted().size() == 3);
}

TEST_CASE("random sequences match as the rule says") {
  std::mt19937_64 random(11);
  for (int sequence = 0; sequence < 200; ++sequence) {
    MessageMatcher matcher;
    std::deque<Receive> posted;
    std::deque<Message> announced;
    for (std::uint32_t step = 0; step < 100; ++step) {
      const auto source = static_cast<std::uint32_t>(random() % 3),
                 tag = static_cast<std::uint32_t>(random() % 3);
      if (random() % 2 == 0) {
        const Receive receive{random() % 3 == 0 ? kAny : source, tag, address(step)};
        auto expected = announced.begin();
        while (expected != announced.end() &&
               (expected->tag != tag || (receive.source != kAny && expected->source != receive.source)))
          ++expected;
        const auto got = matcher.post(receive);
        REQUIRE(got.has_value() == (expected != announced.end()));
        if (!got) {
          posted.push_back(receive);
        } else {
          REQUIRE(*got == *expected);
          announced.erase(expected);
        }
      } else {
        const Message message{source, tag, step};
        auto expected = posted.begin();
        while (expected != posted.end() &&
               (expected->tag != tag || (expected->source != kAny && expected->source != source)))
          ++expected;
        const auto got = matcher.announce(message);
        REQUIRE(got.has_value() == (expected != posted.end()));
        if (!got) {
          announced.push_back(message);
        } else {
          REQUIRE(*got == *expected);
          posted.erase(expected);
        }
      }
      REQUIRE(matcher.posted().size() == posted.size());
      REQUIRE(matcher.announced().size() == announced.size());
    }
  }
}

// Control frames and the handshake's proofs: round trips, split input, and everything malformed refused.
#include "runtime/job/control_frame.hpp"
#include "runtime/job/handshake.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

std::vector<Frame> parse_in_pieces(const std::string& bytes, std::size_t piece_bytes) {
  FrameParser parser;
  std::vector<Frame> frames;
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    parser.feed(std::string_view(bytes).substr(at, piece_bytes));
    for (auto frame = parser.next(); frame && frame->has_value(); frame = parser.next())
      frames.push_back(**frame);
  }
  return frames;
}

template <class Payload>
void check_every_truncation(const Payload& payload) {
  const std::string bytes = encode(payload);
  Payload out;
  CHECK(decode(bytes, out));
  CHECK(encode(out) == bytes);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(decode(bytes.substr(0, length), out));
  CHECK_FALSE(decode(bytes + "x", out));
}

}  // namespace

TEST_CASE("frames survive any way of being cut") {
  std::string bytes;
  for (int i = 0; i < 5; ++i)
    append_frame(bytes, Frame{FrameType::message, i, -i, std::string(i * 100, 'a')});
  for (const std::size_t piece_bytes : {std::size_t{1}, std::size_t{7}, std::size_t{16}, bytes.size()}) {
    const auto frames = parse_in_pieces(bytes, piece_bytes);
    REQUIRE(frames.size() == 5);
    CHECK(frames[3].source == 3);
    CHECK(frames[3].target == -3);
    CHECK(frames[3].payload == std::string(300, 'a'));
  }
}

TEST_CASE("a long stream does not grow the parser") {
  FrameParser parser;
  std::string bytes;
  append_frame(bytes, Frame{FrameType::message, 0, 0, std::string(1000, 'b')});
  std::size_t parsed = 0;
  for (int i = 0; i < 10000; ++i) {
    parser.feed(bytes);
    while (parser.next()->has_value()) ++parsed;
  }
  CHECK(parsed == 10000);
  bytes.clear();
  append_frame(bytes, Frame{FrameType::message, 0, 0, std::string(100000, 'b')});
  parser.set_limit(kMaxPayloadBytes);
  parser.feed(bytes);
  CHECK(parser.next()->has_value());
  CHECK(parser.take_rest().capacity() < 10000);
  clear_buffer(bytes);
  CHECK(bytes.empty());
  CHECK(bytes.capacity() < 10000);
}

TEST_CASE("the header alone refuses what is no frame") {
  std::string good;
  append_frame(good, Frame{FrameType::hello, 0, 0, std::string(kMaxStrangerPayloadBytes + 1, 'x')});
  const auto verdict = [](std::string bytes, std::size_t limit) {
    FrameParser parser;
    parser.set_limit(limit);
    parser.feed(std::move(bytes));
    return parser.next().status();
  };
  const std::string header = good.substr(0, kFrameHeaderBytes);
  CHECK(verdict(header, kMaxStrangerPayloadBytes).code() ==
        StatusCode::refused);  // before any payload arrives
  CHECK(verdict(header, kMaxPayloadBytes));
  for (const std::size_t position : {0, 1, 3}) {
    std::string bad = header;
    bad[position] = 'Z';
    CHECK(verdict(bad, kMaxPayloadBytes).code() == StatusCode::refused);
  }
  for (const char type : {'\0', static_cast<char>(static_cast<int>(kLastFrameType) + 1), '\xff'}) {
    std::string bad = header;
    bad[2] = type;
    CHECK(verdict(bad, kMaxPayloadBytes).code() == StatusCode::refused);
  }
  CHECK(verdict("GET / HTTP/1.1\r\n\r\n", kMaxPayloadBytes).code() == StatusCode::refused);
  CHECK(verdict(std::string(kFrameHeaderBytes - 1, '\0'), kMaxPayloadBytes));  // not yet decidable
}

TEST_CASE("payloads take exactly what was encoded") {
  check_every_truncation(HelloPayload{1, {}, "job"});
  check_every_truncation(ChallengePayload{});
  check_every_truncation(ProofPayload{});
  check_every_truncation(ClaimPayload{{}, MemberClaim{2, 3, 12, "host", "build"}});
  check_every_truncation(StatusPayload{StatusCode::timeout, "late", 3});
  check_every_truncation(TracePayload{7, 1, 2, 3});
  check_every_truncation(GonePayload{4, true, false, "gone", {}});
  check_every_truncation(GonePayload{4, false, true, "", {}});
  check_every_truncation(FailurePayload{1, 2, 3, StatusCode::peer_failed, "gone", {}});
  RankVerdict dead{VerdictKind::dead, 4,       -1,       12, 9,  -1, -1, 6, false,
                   "barrier",         "node1", "killed", "", "", ""};
  FailurePayload failure;
  REQUIRE(decode(encode(FailurePayload{1, 2, 3, StatusCode::peer_failed, "gone", {dead, dead}}), failure));
  CHECK(failure.verdicts == std::vector<RankVerdict>{dead, dead});
  dead.kind = static_cast<VerdictKind>(static_cast<int>(kLastVerdictKind) + 1);
  GonePayload gone;
  CHECK_FALSE(decode(encode(GonePayload{4, true, false, "gone", {dead}}), gone));
  GatherPayload gather;
  REQUIRE(decode(encode(GatherPayload{7, {"a", "", "ccc"}}), gather));
  CHECK(gather.number == 7);
  CHECK(gather.values == std::vector<std::string>{"a", "", "ccc"});
  CHECK_FALSE(decode(std::string(8, '\0') + std::string(4, '\xff'), gather));  // a length without bytes
  EntriesPayload entries;
  REQUIRE(decode(encode(EntriesPayload{7, {{2, "a"}, {0, ""}}}), entries));
  CHECK(entries.entries == decltype(entries.entries){{2, "a"}, {0, ""}});
  CHECK_FALSE(decode(encode(EntriesPayload{7, {{2, "a"}}}) + "x", entries));
  ArrivedPayload arrived;
  REQUIRE(decode(encode(ArrivedPayload{{MemberClaim{1, 2, 3, "h", "b"}, MemberClaim{}}}), arrived));
  CHECK(arrived.claims.size() == 2);
  CHECK(arrived.claims[0].host == "h");
  CHECK_FALSE(decode(encode(arrived) + "x", arrived));
  RanksPayload ranks;
  REQUIRE(decode(encode(RanksPayload{{4, 0, -1}}), ranks));
  CHECK(ranks.ranks == std::vector<std::int32_t>{4, 0, -1});
  CHECK_FALSE(decode(encode(ranks) + "x", ranks));
  PathPayload path;
  REQUIRE(decode(encode(PathPayload{{{3, "10.0.0.1:80 [::1]:80"}, {0, ""}}}), path));
  CHECK(path.steps == std::vector<PathStep>{{3, "10.0.0.1:80 [::1]:80"}, {0, ""}});
  CHECK_FALSE(decode(encode(path) + "x", path));
  CHECK_FALSE(decode(std::string(4, '\0') + std::string(4, '\xff'), path));
  StatusPayload status;
  CHECK_FALSE(decode(std::string("\x63") + std::string(4, '\0'), status));  // no such code
}

TEST_CASE("a proof depends on secret, role, both nonces and the whole claim") {
  const Nonce a = *make_nonce(), b = *make_nonce();
  const MemberClaim claim{1, 2, 5, "host", "build"};
  const Proof good = prove("secret", ProofRole::claim, a, b, claim);
  CHECK(is_equal(good, prove("secret", ProofRole::claim, a, b, claim)));
  CHECK_FALSE(is_equal(good, prove("Secret", ProofRole::claim, a, b, claim)));
  CHECK_FALSE(is_equal(good, prove("", ProofRole::claim, a, b, claim)));
  CHECK_FALSE(is_equal(good, prove("secret", ProofRole::claim, b, a, claim)));
  CHECK_FALSE(is_equal(good, prove("secret", ProofRole::claim, a, b, MemberClaim{0, 2, 5, "host", "build"})));
  CHECK_FALSE(is_equal(good, prove("secret", ProofRole::claim, a, b, MemberClaim{1, 3, 5, "host", "build"})));
  CHECK_FALSE(is_equal(good, prove("secret", ProofRole::claim, a, b, MemberClaim{1, 2, 5, "host", "other"})));
  CHECK_FALSE(
      is_equal(good, prove("secret", ProofRole::claim, a, b, MemberClaim{1, 2, 5, "host", "build", true})));
  CHECK_FALSE(
      is_equal(prove("secret", ProofRole::hub, a, b, claim), prove("secret", ProofRole::claim, a, b, claim)));
}

TEST_CASE("a secret that can be guessed is stretched, for each job in another way") {
  const std::string strong = "0123456789abcdef0123456789abcdef";
  CHECK(is_strong_secret(strong));
  CHECK(*strengthen_secret(strong, "job") == strong);
  CHECK(strengthen_secret("", "job")->empty());
  for (const std::string weak : {"secret", "0123456789abcdef", "00000000000000000000000000000000",
                                 "a sentence of more than 32 characters"}) {
    CHECK_FALSE(is_strong_secret(weak));
    const std::string stretched = *strengthen_secret(weak, "job");
    CHECK(is_strong_secret(stretched));
    CHECK(stretched == *strengthen_secret(weak, "job"));
    CHECK(stretched != *strengthen_secret(weak, "another job"));
  }
  CHECK(name_from_secret(strong, "job") != name_from_secret(strong, "another job"));
  CHECK(name_from_secret(strong, "job") != name_from_secret("another secret", "job"));
}

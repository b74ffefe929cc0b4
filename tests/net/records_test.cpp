// Records of protected connections: what they carry, and that nothing else verifies. Knows no socket.
#include "runtime/net/records.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "runtime/net/wire_security.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace tutti;
using Catch::Matchers::Contains;

constexpr WireKey kKey{1, 2, 3};

// With and without AES where this CPU has it.
std::vector<WireTerms> all_terms() {
  std::vector<WireTerms> all;
  for (const WireSecurity security : {WireSecurity::auth, WireSecurity::encrypt}) {
    all.push_back({security, false});
    if (make_offer(security).has_aes) all.push_back({security, true});
  }
  return all;
}

struct Ends {
  explicit Ends(const WireTerms& terms)
      : a(make_session(terms, kKey, "transcript", true)), b(make_session(terms, kKey, "transcript", false)) {}
  WireSession a, b;
  RecordKeys sending{a.terms, a.sending};
  RecordKeys receiving{b.terms, b.receiving};
};

std::string seal(RecordKeys& keys, const std::string& text) {
  std::string record = std::string(kRecordHeadBytes, '\0') + text + std::string(kRecordTagBytes, '\0');
  keys.seal(std::as_writable_bytes(std::span(record)));
  return record;
}

// The text, or the error.
std::string open(RecordKeys& keys, std::string record) {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(record));
  if (bytes.size() < kRecordHeadBytes) return "short";
  const auto length = keys.record_bytes(bytes.first<kRecordHeadBytes>());
  if (!length) return length.status().message();
  if (*length > bytes.size()) return "short";
  const auto text = keys.open(bytes.first(*length));
  if (!text) return text.status().message();
  return {reinterpret_cast<const char*>(text->data()), text->size()};
}

}  // namespace

TEST_CASE("records carry a stream, readable with auth and not with encrypt") {
  for (const WireTerms& terms : all_terms()) {
    CAPTURE(to_string(terms.security), terms.uses_aes);
    Ends ends(terms);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, kMaxRecordBytes}) {
      const std::string text(bytes, static_cast<char>('a' + bytes % 26));
      const std::string record = seal(ends.sending, text);
      CHECK(record.size() == bytes + kRecordExtraBytes);
      const bool is_readable = record.find(text.substr(0, 64)) != std::string::npos;
      if (bytes >= 64) CHECK(is_readable == (terms.security == WireSecurity::auth));
      CHECK((open(ends.receiving, record) == text));
    }
  }
}

TEST_CASE("a record with any bit changed does not verify") {
  for (const WireTerms& terms : all_terms()) {
    CAPTURE(to_string(terms.security), terms.uses_aes);
    Ends ends(terms);
    const std::string record = seal(ends.sending, "twenty bytes of text");
    for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
      std::string changed = record;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      CAPTURE(bit);
      REQUIRE_THAT(open(ends.receiving, changed), Contains("changed, lost or repeated"));
    }
    CHECK(open(ends.receiving, record) == "twenty bytes of text");  // none of them counted
  }
}

TEST_CASE("a record verifies once, in its place, in its direction and in its connection") {
  for (const WireTerms& terms : all_terms()) {
    CAPTURE(to_string(terms.security), terms.uses_aes);
    Ends ends(terms);
    const std::string first = seal(ends.sending, "first"), second = seal(ends.sending, "second");
    CHECK_THAT(open(ends.receiving, second), Contains("changed, lost or repeated"));  // one is lost
    CHECK(open(ends.receiving, first) == "first");
    CHECK_THAT(open(ends.receiving, first), Contains("changed, lost or repeated"));  // repeated
    CHECK(open(ends.receiving, second) == "second");
    RecordKeys own(ends.a.terms, ends.a.receiving);  // what comes back to its sender
    CHECK_THAT(open(own, first), Contains("changed, lost or repeated"));
    const WireSession other = make_session(terms, kKey, "another transcript", false);
    RecordKeys elsewhere(other.terms, other.receiving);
    CHECK_THAT(open(elsewhere, first), Contains("changed, lost or repeated"));
  }
}

TEST_CASE("a key serves one mode and one cipher") {
  const WireSession auth = make_session({WireSecurity::auth, false}, kKey, "t", true);
  CHECK(auth.sending != make_session({WireSecurity::encrypt, false}, kKey, "t", true).sending);
  CHECK(auth.sending != make_session({WireSecurity::auth, true}, kKey, "t", true).sending);
  CHECK(auth.sending != auth.receiving);
}

TEST_CASE("both ends change their keys after the same record") {
  const WireTerms terms{WireSecurity::auth, make_offer(WireSecurity::auth).has_aes};
  Ends ends(terms);
  std::string record = std::string(kRecordExtraBytes + 1, '\0');
  bool is_sound = true;
  for (std::uint64_t i = 0; i < kRecordsPerKey + 2; ++i) {
    record[kRecordHeadBytes] = static_cast<char>(i);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(record));
    ends.sending.seal(bytes);
    is_sound = is_sound && ends.receiving.record_bytes(bytes.first<kRecordHeadBytes>()) &&
               ends.receiving.open(bytes);
  }
  CHECK(is_sound);
}

TEST_CASE("the stricter mode holds, and AES where both ends have it") {
  using S = WireSecurity;
  const auto offer = [](S security, bool has_aes) {
    return WireOffer{static_cast<std::uint8_t>(security), has_aes};
  };
  CHECK(combine(offer(S::off, true), offer(S::encrypt, true)).security == S::encrypt);
  CHECK(combine(offer(S::auth, true), offer(S::off, false)).security == S::auth);
  CHECK(combine(offer(S::auth, true), offer(S::auth, true)).uses_aes);
  CHECK_FALSE(combine(offer(S::auth, true), offer(S::auth, false)).uses_aes);
  CHECK_FALSE(WireOffer{3, false}.is_valid());
}

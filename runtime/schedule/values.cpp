// The three value algebras. Only expressions are interned (equal trees must be equal numbers); sets and words
// are compared by content, which is cheaper than a table of them.
#include "runtime/schedule/values.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::detail {

ValueTable::ValueTable(Algebra algebra, bool is_idempotent, std::uint32_t ranks, std::uint32_t atoms)
    : algebra_(is_idempotent ? Algebra::multiset : algebra),
      is_idempotent_(is_idempotent),
      ranks_(ranks),
      atoms_(atoms),
      words_((ranks + 63) / 64) {}

std::uint32_t ValueTable::atom_of(Value v) const {
  return is_contribution(v) ? (v - 1) % atoms_ : entry(v).atom;
}

Value ValueTable::append(const Entry& e) {
  entries_.push_back(e);
  return ranks_ * atoms_ + static_cast<Value>(entries_.size());
}

Value ValueTable::add(Value left, Value right, std::string& why) {
  if (atom_of(left) != atom_of(right)) {
    why = fmt::format("adds atom {} to atom {}", atom_of(right), atom_of(left));
    return kUnwritten;
  }
  switch (algebra_) {
    case Algebra::multiset:
      return add_sets(left, right, why);
    case Algebra::word:
      return add_words(left, right, why);
    case Algebra::expression:
      return add_trees(left, right);
  }
  return kUnwritten;
}

std::uint64_t ValueTable::bits(Value v, std::uint32_t word) const {
  if (!is_contribution(v)) return bits_[entry(v).first + word];
  const std::uint32_t rank = rank_of(v);
  return rank / 64 == word ? std::uint64_t{1} << (rank % 64) : 0;
}

Value ValueTable::add_sets(Value left, Value right, std::string& why) {
  const auto at = static_cast<std::uint32_t>(bits_.size());
  for (std::uint32_t w = 0; w < words_; ++w) {
    const std::uint64_t a = bits(left, w), b = bits(right, w);
    if ((a & b) != 0 && !is_idempotent_) {
      const int bit = __builtin_ctzll(a & b);
      why =
          fmt::format("adds the contribution of rank {} a second time", w * 64 + static_cast<unsigned>(bit));
      bits_.resize(at);
      return kUnwritten;
    }
    bits_.push_back(a | b);
  }
  return append({atom_of(left), at, 0});
}

Value ValueTable::add_words(Value left, Value right, std::string& why) {
  const auto ends = [this](Value v) {
    return is_contribution(v) ? Entry{0, rank_of(v), rank_of(v) + 1} : entry(v);
  };
  const Entry a = ends(left), b = ends(right);
  if (a.last != b.first) {
    // Once two contributions stand side by side that are no neighbours, no later addition can repair it.
    why = fmt::format("combines {} with {} to its right, which is not rank order", describe(left),
                      describe(right));
    return kUnwritten;
  }
  return append({atom_of(left), a.first, b.last});
}

Value ValueTable::add_trees(Value left, Value right) {
  const auto [low, high] = std::minmax(left, right);  // IEEE addition commutes bitwise (NaN payloads aside)
  const auto [at, is_new] = trees_.try_emplace(std::uint64_t{low} << 32 | high, kUnwritten);
  if (is_new) at->second = append({atom_of(left), low, high, std::max(roundings(left), roundings(right))});
  return at->second;
}

// A tree of one child: its missing sibling is kUnwritten, which no sum has.
Value ValueTable::round(Value v) {
  if (algebra_ != Algebra::expression || v == kUnwritten) return v;
  if (!is_contribution(v) && entry(v).first == kUnwritten) return v;
  const auto [at, is_new] = trees_.try_emplace(v, kUnwritten);
  if (is_new) at->second = append({atom_of(v), kUnwritten, v, roundings(v) + 1});
  return at->second;
}

bool ValueTable::is_range(Value v, std::uint32_t first, std::uint32_t last, std::uint32_t atom) const {
  if (v == kUnwritten || atom_of(v) != atom) return false;
  if (is_contribution(v)) return rank_of(v) == first && last == first + 1;
  if (algebra_ == Algebra::word) return entry(v).first == first && entry(v).last == last;
  for (std::uint32_t w = 0; w < words_; ++w) {
    const std::uint64_t have = bits(v, w);
    std::uint64_t want = 0;
    if (first < (w + 1) * 64 && last > w * 64) {
      const std::uint32_t from = std::max(first, w * 64) - w * 64, to = std::min(last, (w + 1) * 64) - w * 64;
      want =
          (to == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << to) - 1) & ~((std::uint64_t{1} << from) - 1);
    }
    if (have != want) return false;
  }
  return true;
}

std::string ValueTable::describe(Value v) const {
  if (v == kUnwritten) return "nothing";
  if (is_contribution(v)) return fmt::format("the contribution of rank {}", rank_of(v));
  if (algebra_ == Algebra::word)
    return fmt::format("the contributions of ranks {}-{}", entry(v).first, entry(v).last - 1);
  if (algebra_ == Algebra::expression) return "a sum";
  std::vector<bool> has(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) has[r] = (bits(v, r / 64) >> (r % 64) & 1) != 0;
  return fmt::format("the contributions of ranks {}", describe_ranges(has));
}

std::string describe_ranges(const std::vector<bool>& has) {
  std::string text;
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (!has[i]) continue;
    std::size_t end = i;
    while (end + 1 < has.size() && has[end + 1]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
    if (end > i) text += fmt::format("-{}", end);
    i = end;
  }
  return text;
}

}  // namespace tutti::detail

// Parsing of dtype, op and collective names; the names themselves are constexpr tables in the header.
#include "runtime/base/types.hpp"

namespace tutti {
namespace {

template <class Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Dtype> parse_dtype(std::string_view name) { return parse<Dtype>(kDtypeNames, name); }
std::optional<Op> parse_op(std::string_view name) { return parse<Op>(kOpNames, name); }
std::optional<Collective> parse_collective(std::string_view name) {
  return parse<Collective>(kCollectiveNames, name);
}

}  // namespace tutti

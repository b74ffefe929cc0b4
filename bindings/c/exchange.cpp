// The exchange or store of a C program, in the form of tutti::init. Knows the given functions, and no meaning
// of the bytes.
#include <numeric>
#include <stdexcept>
#include <vector>

#include "bindings/c/handles.hpp"

namespace tutti::c {
namespace {

constexpr std::size_t kFirstInitOptionsBytes = 72;
static_assert(sizeof(tutti_init_options_t) == kFirstInitOptionsBytes, "the first version has all members");
constexpr std::uint64_t kMaxValueBytes = std::uint64_t{1} << 30U;  // more is a mistake of the exchange

void check_done(const char* what, int result) {
  if (result != 0) throw std::runtime_error(std::string(what) + " returned " + std::to_string(result));
}

// Ranks give texts of different lengths, but the C allgather takes equal ones: first the lengths, then the
// texts, padded to the longest.
std::vector<std::string> allgather_texts(const tutti_init_options_t& options, std::string_view mine) {
  const auto size = static_cast<std::size_t>(options.size);
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(size);
  check_done("allgather",
             options.allgather(options.exchange_context, &length, lengths.data(), sizeof length));
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest > kMaxValueBytes) throw std::runtime_error("a length came back that no rank gave");
  std::vector<std::string> texts(size);
  if (longest == 0) return texts;
  std::string filled(mine), all(longest * size, '\0');
  filled.resize(longest);
  check_done("allgather", options.allgather(options.exchange_context, filled.data(), all.data(), longest));
  for (std::size_t rank = 0; rank < size; ++rank) texts[rank] = all.substr(rank * longest, lengths[rank]);
  return texts;
}

std::string get_value(const tutti_init_options_t& options, const std::string& key) {
  std::string value(4096, '\0');
  for (;;) {
    std::size_t bytes = 0;
    check_done("get", options.get(options.exchange_context, key.c_str(), value.data(), value.size(), &bytes));
    if (bytes > kMaxValueBytes) throw std::runtime_error("get returned a length that no rank put");
    const bool is_whole = bytes <= value.size();
    value.resize(bytes);
    if (is_whole) return value;
  }
}

}  // namespace

InitOptions init_options_of(const tutti_init_options_t& given) {
  const tutti_init_options_t options = known_options("init", &given, kFirstInitOptionsBytes);
  InitOptions result;
  if (options.unique_id != nullptr) result.unique_id = options.unique_id;
  if (options.allgather != nullptr) {
    result.allgather = [options](std::string_view mine) { return allgather_texts(options, mine); };
  }
  if (options.put != nullptr) {
    result.put = [options](const std::string& key, const std::string& value) {
      check_done("put", options.put(options.exchange_context, key.c_str(), value.data(), value.size()));
    };
  }
  if (options.get != nullptr) {
    result.get = [options](const std::string& key) { return get_value(options, key); };
  }
  if (options.store_prefix != nullptr) result.store_prefix = options.store_prefix;
  // In C, a zero is an unset member.
  const bool is_set = options.rank != 0 || options.size != 0;
  if (is_set || options.unique_id != nullptr || result.allgather || result.put || result.get) {
    result.rank = options.rank;
    result.size = options.size;
  }
  result.timeout = duration_of(options.timeout_ms);
  return result;
}

}  // namespace tutti::c

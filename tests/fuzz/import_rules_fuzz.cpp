// Fuzz target: any bytes are refused as rules of Open MPI, oneCCL or NCCL, or become a tuning file that can
// be read again, with rules that choose. The first byte says of which library.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/cli/tune/import.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tutti::tool::ImportForm;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const unsigned form = data[0] % 4U;
  const auto made = tutti::tool::import_rules(
      text, form == 3 ? std::nullopt : std::optional(static_cast<ImportForm>(form)));
  if (!made) {
    require(!made.status().message().empty());
    return 0;
  }
  for (const auto& remark : made->remarks) require(!remark.where.empty() && !remark.why.empty());
  const auto again = tutti::parse_tuning(tutti::to_text(made->tuning), "F");
  require(again.is_ok());
  const auto selector = tutti::Selector::make(tutti::rule_texts(*again, "F"));
  require(selector.is_ok());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8192}, ~std::uint64_t{0}}) {
    tutti::Question q;
    q.bytes = bytes;
    q.size = 4;
    require(selector->choose(q).is_ok());
  }
  return 0;
}

// Which tutti this is. Knows nothing else.
#pragma once

#include <string_view>

namespace tutti {

std::string_view version_text();  // "0.1.0"
std::string_view build_id();      // the commit it was built from; all ranks of a job must have the same

}  // namespace tutti

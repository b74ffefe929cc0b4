// In place of runtime/base/version.cpp in a second library, which takes itself for a later release. Knows
// nothing else of it.
#include "runtime/base/version.hpp"

namespace tutti {

std::string_view version_text() { return "9.8.7"; }
std::string_view build_id() { return "9.8.7 later"; }
std::string_view binary_id() { return "9.8.7 later, of nobody"; }

}  // namespace tutti

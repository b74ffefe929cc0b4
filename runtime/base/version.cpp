// Version and build id. The one file that is compiled again for every commit.
#include "runtime/base/version.hpp"

#include "tutti_build_id.hpp"
#include "tutti_config.hpp"

namespace tutti {

std::string_view version_text() { return TUTTI_VERSION; }
std::string_view build_id() { return TUTTI_VERSION " " TUTTI_BUILD_ID; }
std::string_view binary_id() {
  return TUTTI_VERSION " " TUTTI_BUILD_ID ", " TUTTI_COMPILER ", " TUTTI_BUILD_TYPE;
}

}  // namespace tutti

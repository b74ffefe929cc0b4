// Algorithm rules from the environment, in our variables and in Intel MPI's. Knows no rule's meaning.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// In order of precedence. Adds every text that is in force to `contract`: two ranks with different rules would
// choose differently. Errors: invalid_argument.
Result<std::vector<RuleText>> read_rule_settings(const Environment& environment,
                                                 std::vector<std::pair<std::string, std::string>>& contract);

}  // namespace tutti

// Admission of calls: arguments checked, memory located, in place recognised. Knows no submission.
#pragma once

#include "runtime/base/call.hpp"
#include "runtime/group/comm_group.hpp"

namespace tutti {

// Turns a call as its caller describes it into one that may be submitted. `reduction`: null where nothing is
// reduced. Throws the error of a bad call.
Call admit(CommGroup::Impl& group, const char* name, Call call, const CallOptions& options,
           const Reduction* reduction);

}  // namespace tutti

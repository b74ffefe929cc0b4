// Headers that most sources of the tool include; compiled once where -Dprecompiled=true. Sources do not rely on it.
// A guard, because compilers warn of #pragma once in a header that is compiled by itself.
#ifndef TUTTI_PRECOMPILED_TOOL
#define TUTTI_PRECOMPILED_TOOL

#include "runtime/base/precompiled/core.hpp"

#endif  // TUTTI_PRECOMPILED_TOOL

// Headers that most sources of the PyTorch backend include; compiled once where -Dprecompiled=true. Sources do not rely
// on it.
// A guard, because compilers warn of #pragma once in a header that is compiled by itself.
#ifndef TUTTI_PRECOMPILED_TORCH
#define TUTTI_PRECOMPILED_TORCH

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#endif  // TUTTI_PRECOMPILED_TORCH

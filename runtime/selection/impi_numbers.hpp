// Intel MPI's numbers of algorithms (I_MPI_ADJUST_<COLLECTIVE>) and the catalogue's algorithm for each.
// Numbers whose algorithm is unpublished, or aware of a topology that is not modelled here, name a documented
// substitute.
#pragma once

#include <span>
#include <string_view>

#include "runtime/base/types.hpp"

namespace tutti {

struct ImpiNumber {
  Collective collective;
  int number;
  std::string_view intel_name;
  std::string_view algorithm;  // of the catalogue
  bool is_substitute;
};
std::span<const ImpiNumber> impi_numbers();

// The catalogue's name for a number given in decimal digits; empty if there is none.
std::string_view algorithm_of_number(Collective collective, std::string_view digits);

}  // namespace tutti

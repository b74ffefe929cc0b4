// The world that functions of the module mean, and how it is made. Knows no collective.
#pragma once

#include "bindings/python/native/group.hpp"

namespace tutti::python {

// The first world that init() made, until it is closed. Raises NotInitializedError.
const SharedGroup& world();
// Adds init, finalize and what else has to do with worlds.
void define_world(py::module_& module);

}  // namespace tutti::python

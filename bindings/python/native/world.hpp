// The default world of the module functions, and its construction. Knows no collective.
#pragma once

#include "bindings/python/native/group.hpp"

namespace tutti::python {

// The first world that init() made, until it is closed. Raises NotInitializedError.
const SharedGroup& world();
// Adds init, finalize and the other functions of worlds.
void define_world(py::module_& module, py::class_<OpenGroup, SharedGroup>& group);

}  // namespace tutti::python

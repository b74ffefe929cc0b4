// The calls that communicate, as methods of Group and as functions of the module. Knows no transport.
#pragma once

#include "bindings/python/native/group.hpp"

namespace tutti::python {

void define_collectives(py::module_& module, py::class_<OpenGroup, SharedGroup>& group);
// Calls with a count for each rank.
void define_uneven_collectives(py::module_& module, py::class_<OpenGroup, SharedGroup>& group);

}  // namespace tutti::python

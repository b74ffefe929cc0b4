// The operations that TensorFlow gets: their names. Knows no kernel.
#pragma once

#include "bindings/tensorflow/process_sets.hpp"

namespace tutti::tensorflow {

// "TuttiAllreduce" and so on.
const char* operation_name(Kind kind);

}  // namespace tutti::tensorflow

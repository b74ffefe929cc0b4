// A kernel of a collective: its attributes, and the name under which its tensors are matched between ranks. Knows no tensor.
#pragma once

#include <string>

#include "bindings/tensorflow/process_sets.hpp"
#include "bindings/tensorflow/status.hpp"

namespace tutti::tensorflow {

struct Kernel {
  Kind kind = Kind::allreduce;
  // The operation's node in a graph, or the name that an eager call gives. Empty for an eager call without one.
  std::string name;
  // TensorFlow waits for eager operations at once.
  bool is_eager = false;
  int process_set = 0;
  int reduce_op = 0;  // as Horovod numbers them
  double prescale = 1;
  double postscale = 1;
  int root = 0;  // rank in the process set

  // The name of one execution. Members that call in the same order get equal ones.
  std::string name_of(ProcessSet& set) const;
};

constexpr int kAverage = 0;

// Returns null after it has told TensorFlow why the attributes are wrong.
Kernel* make_kernel(TF_OpKernelConstruction* construction, Kind kind);

const char* name_of(Kind kind);

}  // namespace tutti::tensorflow

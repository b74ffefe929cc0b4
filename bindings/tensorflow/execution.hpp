// One execution of a collective's kernel: its tensors are submitted to the queue of the process set, and TensorFlow is told once all of
// them are complete. No thread waits meanwhile, so that operations may become ready in any order. Knows no operation definition.
#pragma once

#include "bindings/tensorflow/kernel.hpp"

namespace tutti::tensorflow {

// The compute function of all collectives. `done` is TensorFlow's, dead once this returns.
void execute(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

}  // namespace tutti::tensorflow

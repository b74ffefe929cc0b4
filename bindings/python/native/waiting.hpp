// Working without the GIL, and waiting such that signal handlers of Python still run. Knows no call.
#pragma once

#include <pybind11/pybind11.h>

#include "tutti/work.hpp"

namespace tutti::python {

// While it lives, other threads of the interpreter run.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Whether a signal handler has raised an exception, which is then set in this thread.
  bool is_interrupted() {
    PyEval_RestoreThread(state_);
    const bool has_raised = PyErr_CheckSignals() != 0;
    state_ = PyEval_SaveThread();
    return has_raised;
  }

  // Waits for the work; false if a signal handler has raised, and the work goes on. Throws its error.
  bool wait(const Work& work) {
    return work.wait_unless([](void* self) { return static_cast<WithoutGil*>(self)->is_interrupted(); },
                            this);
  }

 private:
  PyThreadState* state_;
};

}  // namespace tutti::python

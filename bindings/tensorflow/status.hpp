// Outcomes of operations, as TensorFlow and as tutti count them. Knows no operation.
#pragma once

#include <string>

#include "bindings/tensorflow/tensorflow.hpp"
#include "tutti/c_types.h"

namespace tutti::tensorflow {

// A status of TensorFlow that is freed with its scope.
class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  Status(TF_Code code, const std::string& message) : Status() {
    TF_SetStatus(status_, code, message.c_str());
  }
  ~Status() { TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  operator TF_Status*() { return status_; }
  bool is_ok() const { return TF_GetCode(status_) == TF_OK; }
  std::string message() const { return TF_Message(status_); }

 private:
  TF_Status* status_;
};

// Why an operation failed; TF_OK where it did not.
struct Failure {
  TF_Code code = TF_OK;
  std::string message;

  bool is_set() const { return code != TF_OK; }
};

inline Failure not_initialized() {
  return {TF_FAILED_PRECONDITION, "Horovod has not been initialized; use hvd.init()."};
}
inline Failure unknown_process_set(int id) {
  return {TF_INVALID_ARGUMENT,
          "process set " + std::to_string(id) + " is not registered; use hvd.add_process_set()"};
}

// The codes are those that Horovod gives, since programs catch tf.errors by kind.
inline TF_Code code_of(tutti_status_t status) {
  switch (status) {
    case TUTTI_OK:
      return TF_OK;
    case TUTTI_INVALID_ARGUMENT:
      return TF_INVALID_ARGUMENT;
    case TUTTI_MISMATCH:
      return TF_FAILED_PRECONDITION;
    case TUTTI_ABORTED:
      return TF_ABORTED;
    case TUTTI_UNSUPPORTED:
      return TF_UNIMPLEMENTED;
    case TUTTI_RESOURCE_EXHAUSTED:
      return TF_RESOURCE_EXHAUSTED;
    default:
      return TF_UNKNOWN;
  }
}

}  // namespace tutti::tensorflow

// A communication that may be started again and again. Knows no operation and no layer.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti::mlsl {

class Request {
 public:
  // `name`: of the call that starts it, for messages.
  explicit Request(std::string name) : name_(std::move(name)) {}
  // Waits for an active one, whose memory the program, or the owner of this object, frees next.
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const std::string& name() const { return name_; }
  // Errors: ends the job if the request is active.
  void begin();
  void add(Work work) { works_.push_back(std::move(work)); }
  // Runs once, when the works are complete.
  void at_end(std::function<void()> finish) { finish_ = std::move(finish); }

  // Nothing to wait for: returns at once. Errors: end the job.
  void wait();
  // Makes progress. True once complete, and for a request that is not active.
  bool test();

 private:
  void end();

  std::string name_;
  bool is_active_ = false;
  std::vector<Work> works_;
  std::function<void()> finish_;
};

// Adds an allreduce; one above MLSL_LARGE_MSG_SIZE_MB is split into MLSL_LARGE_MSG_CHUNKS operations.
void add_allreduce(Request& request, const CommGroup& group, const void* input, void* output,
                   std::size_t count, Dtype dtype, const Reduction& reduction);

}  // namespace tutti::mlsl

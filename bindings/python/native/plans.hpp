// Call plans: a call with its arrays, started again and again. Knows no transport.
#pragma once

#include "bindings/python/native/group.hpp"
#include "tutti/call_plan.hpp"

namespace tutti::python {

// A plan with a handle of its group, which the end of the interpreter closes. All members need the GIL.
class OpenCallPlan final : public OpenGroup {
 public:
  // The plan and its arrays. A thread that uses the plan holds it, so another one can close it meanwhile.
  class Held {
   public:
    Held(CallPlan of, Buffers with) : plan(std::move(of)), buffers(std::move(with)) {}
    // The operations of a run use the arrays until the plan has ended.
    ~Held() {
      const WithoutGil without;
      plan.close();
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    CallPlan plan;
    Buffers buffers;
  };

  OpenCallPlan(SharedGroup parent, CallPlan plan, Buffers buffers);
  ~OpenCallPlan() override;
  OpenCallPlan(const OpenCallPlan&) = delete;
  OpenCallPlan& operator=(const OpenCallPlan&) = delete;

  std::shared_ptr<Held> held() const { return held_; }  // null once closed
  void close() override;

 private:
  SharedGroup parent_;  // has the while_waiting function that the plan's calls name
  std::shared_ptr<Held> held_;
};

// make_plan() of Group and of the module, and the class CallPlan.
void define_plans(py::module_& module, py::class_<OpenGroup, SharedGroup>& group);

}  // namespace tutti::python

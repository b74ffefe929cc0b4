// The native module of the Python package: its classes. Knows no transport and no algorithm.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/python/native/arguments.hpp"
#include "bindings/python/native/array.hpp"
#include "bindings/python/native/collectives.hpp"
#include "bindings/python/native/plans.hpp"
#include "bindings/python/native/tensors.hpp"
#include "bindings/python/native/world.hpp"

namespace tutti::python {
namespace {

// A group for this rank or, where it is in none, None.
py::object to_python(CommGroup group) {
  if (!group.is_open()) return py::none();
  return py::cast(std::make_shared<OpenGroup>(std::move(group)));
}

// A thread that holds a lock which this call waits for may need the GIL, to run a user_op().
template <class Function>
auto without_gil(const Function& function) {
  const WithoutGil without;
  return function();
}

py::object split(const SharedGroup& group, std::optional<int> colour, int key) {
  return guarded(*group, "split", [&] {
    // The exchange of the split is then quick, so only the barrier needs to react to Ctrl-C.
    run_to_end(group, "split", {}, [](const CommGroup& g) { return g.ibarrier(); });
    CommGroup made;
    {
      const WithoutGil without;
      made = group->group().split(colour.value_or(-1), key);
    }
    return to_python(std::move(made));
  });
}

// An array that a group has registered.
class RegisteredArray {
 public:
  RegisteredArray(Array array, RegisteredBuffer buffer)
      : array_(std::move(array)), buffer_(std::move(buffer)) {}
  bool is_registered() const { return buffer_.is_registered(); }
  void release() {
    buffer_.release();
    array_ = Array();
  }

 private:
  Array array_;
  RegisteredBuffer buffer_;
};

std::unique_ptr<RegisteredArray> register_buffer(const SharedGroup& group, py::handle given) {
  constexpr const char* kCall = "register_buffer";
  return guarded(*group, kCall, [&] {
    Array array = Array::of(given, kCall, "array", Use::read, std::nullopt);
    RegisteredBuffer buffer =
        group->group().register_buffer(array.data(), array.count() * array.element_bytes());
    return std::make_unique<RegisteredArray>(std::move(array), std::move(buffer));
  });
}

std::string describe_group(const OpenGroup& group) {
  if (!group.group().is_open()) return "<tutti.Group, closed>";
  return "<tutti.Group: rank " + std::to_string(group.group().rank()) + " of " +
         std::to_string(group.group().size()) + ">";
}

void define_parts(py::class_<OpenGroup, SharedGroup>& group) {
  group.def("split", &split,
            "The ranks with the same colour, ordered by (key, rank). Colour None: no group for this rank, "
            "which gets None. Every rank of this group calls it.",
            py::arg("colour"), py::arg("key") = 0);
  group.def(
      "split_by_node",
      [](const SharedGroup& g) {
        return guarded(*g, "split_by_node",
                       [&] { return to_python(without_gil([&] { return g->group().split_by_node(); })); });
      },
      "The ranks of this rank's node, in rank order. No communication.");
  group.def(
      "create",
      [](const SharedGroup& g, const std::vector<int>& ranks, const std::string& tag) {
        return guarded(*g, "create",
                       [&] { return to_python(without_gil([&] { return g->group().create(ranks, tag); })); });
      },
      "The listed ranks of this group, in that order; called by them alone, with equal lists and tags. The "
      "order in which a rank makes groups with equal lists and tags tells them apart.",
      py::arg("ranks"), py::arg("tag") = "");
  group.def(
      "stream",
      [](const SharedGroup& g, int which) {
        return guarded(*g, "stream",
                       [&] { return to_python(without_gil([&] { return g->group().stream(which); })); });
      },
      "The stream of that number: the same ranks with an independent sequence of operations, for one "
      "thread. 0 is the group itself. No communication; any thread, at any time. The group lasts until it "
      "and its streams are closed, and they fail together.",
      py::arg("number"));
  group.def(
      "close_stream",
      [](const SharedGroup& g, int which) {
        guarded(*g, "close_stream", [&] { without_gil([&] { g->group().close_stream(which); }); });
      },
      "End the stream of that number (1 or more), after this rank's last operation on it. Its memory is "
      "reused once all ranks have closed it; the number is then a new stream. No communication.",
      py::arg("number"));
}

void define_group(py::class_<OpenGroup, SharedGroup>& group) {
  const auto number = [&group](const char* name, int (CommGroup::*read)() const, const char* text) {
    group.def_property_readonly(
        name,
        [name, read](const OpenGroup& g) { return guarded(g, name, [&] { return (g.group().*read)(); }); },
        text);
  };
  number("rank", &CommGroup::rank, "This process's rank in the group.");
  number("size", &CommGroup::size, "The number of ranks of the group.");
  number("local_rank", &CommGroup::local_rank, "This rank among those of its node, in rank order.");
  number("local_size", &CommGroup::local_size, "The number of the group's ranks on this node.");
  group.def_property_readonly(
      "is_open", [](const OpenGroup& g) { return g.group().is_open(); }, "Whether it is not closed.");
  group.def_property_readonly(
      "c_handle",
      [](const SharedGroup& g) {
        return guarded(*g, "c_handle", [&] { return reinterpret_cast<std::uintptr_t>(g->c_handle()); });
      },
      "The group as the tutti_group_t of the C interface, a number: for libraries that communicate natively. "
      "They link the libtutti of this package. Valid until close(); not to be closed by them.");
  group.def_property("while_waiting", &OpenGroup::while_waiting, &OpenGroup::set_while_waiting,
                     "A function without arguments that waiting calls of this group call, to make progress "
                     "in another communication library. It must not wait for operations of tutti. None: no "
                     "function. Applies to later calls.");
  group.def(
      "explain_algorithm",
      [](const SharedGroup& g, const std::string& collective, std::size_t count, const std::string& dtype,
         py::handle op) {
        return guarded(*g, "explain_algorithm", [&] {
          constexpr const char* kCall = "explain_algorithm";
          return g->group().explain_algorithm(collective_of(collective, kCall), count, dtype_of_name(dtype),
                                              reduction_of(op, kCall));
        });
      },
      "The algorithm that a call would use here, and the reason.", py::arg("collective"), py::arg("count"),
      py::arg("dtype") = "float32", py::arg("op") = "sum");
  group.def("register_buffer", &register_buffer,
            "Tell NCCL that many calls of this group will use this GPU array, until the result is "
            "released. Changes no result; of this rank alone. The array is kept, not copied.",
            py::arg("array"));
  group.def(
      "abort",
      [](const SharedGroup& g, const std::string& why) {
        guarded(*g, "abort", [&] {
          const WithoutGil without;
          g->group().abort(why);
        });
      },
      "Fail the group on all ranks; every pending and later call raises this reason.", py::arg("why"));
  group.def("close", &OpenGroup::close,
            "Leave the group; operations under way end with it, once their Work is dropped. A second call "
            "does nothing.");
  group.def("__enter__", [](const SharedGroup& g) { return g; });
  group.def("__exit__", [](const SharedGroup& g, const py::args&) { g->close(); });
  group.def("__repr__", &describe_group);
}

void define_registered_buffer(py::module_& module) {
  py::class_<RegisteredArray> buffer(
      module, "RegisteredBuffer",
      "An array registered by Group.register_buffer(), until release(), the end of a with block, or the "
      "end of the group.");
  buffer.def("release", &RegisteredArray::release,
             "End the registration, while no call on the array is under way, and release the array. A "
             "second call does nothing.");
  buffer.def_property_readonly("is_registered", &RegisteredArray::is_registered, "Has it not been released?");
  buffer.def("__enter__", [](const py::object& self) { return self; });
  buffer.def("__exit__", [](RegisteredArray& self, const py::args&) { self.release(); });
}

void define_work(py::module_& module) {
  py::class_<PendingWork> work(module, "Work", "An operation under way. Dropping it does not cancel it.");
  work.def("test", &PendingWork::test,
           "Make progress; True once complete, also by failure, which wait() and result() then raise.");
  work.def("wait", &PendingWork::wait,
           "Wait until complete and return True; or return False after timeout seconds, and the operation "
           "goes on. Without a timeout the group's deadline counts. Raises the error of the operation.",
           py::arg("timeout") = py::none());
  work.def(
      "on_complete", &PendingWork::on_complete,
      "Call callback(None), or callback(exception), once the operation is complete: on the thread that "
      "completes it, or here and now. It may start operations, and must not wait. Any number of callbacks, "
      "in order; their exceptions go to sys.unraisablehook.",
      py::arg("callback"));
  work.def("result", &PendingWork::result, "Wait, and return what the blocking call would have returned.");
  work.def_property_readonly("operation", &PendingWork::operation, "What was called: \"allreduce\".");
  work.def_property_readonly("source", &PendingWork::source,
                             "The rank that sent the message of a complete receive; else None.");
  work.def("__await__", [](const py::object& self) {
    return py::module_::import("tutti._awaiting").attr("complete")(self).attr("__await__")();
  });
  module.def("wait_all", &wait_all,
             "Wait for all of these Works, then raise the first error, if there is one. Sends, receives and "
             "others may be started in any order before it.",
             py::arg("works"));
  work.def("__repr__", [](const PendingWork& self) {
    return "<tutti.Work: " + std::string(self.operation()) + (self.is_known_complete() ? ", complete>" : ">");
  });
}

void define_queue(py::module_& module) {
  py::class_<WorkQueue> queue(module, "CompletionQueue",
                              "Hands completed Works to a thread of the program's choice; one thread at a "
                              "time.");
  queue.def(py::init<>());
  queue.def("add", &WorkQueue::add, "Have poll() return this Work once it is complete.", py::arg("work"));
  queue.def("poll", &WorkQueue::poll,
            "The next complete Work, in the order of completion, or None; its result() raises its error. "
            "Makes progress; never waits.");
  queue.def("__len__", &WorkQueue::size);
}

void define_ops(py::module_& module) {
  const py::class_<OpObject> reduction(module, "Reduction", "An op that is more than its name.");
  module.def(
      "premul_sum",
      [](const py::object& factor) {
        if (py::isinstance<py::int_>(factor))
          return OpObject{Reduction::premul_sum_integer(factor.cast<std::int64_t>()), {}, true};
        return OpObject{Reduction::premul_sum(factor.cast<double>()), {}, true};
      },
      "An op: each rank's input times its own factor, then added. An int is for integer arrays.",
      py::arg("factor"));
  module.def(
      "user_op",
      [](const py::object& function, bool is_commutative) {
        if (PyCallable_Check(function.ptr()) == 0)
          throw py::type_error("user_op: function: it cannot be called");
        return OpObject{Op::user, function, is_commutative};
      },
      "An op: function(a, b) combines two numpy arrays of one dimension, element by element, and returns "
      "an array of their dtype. It must be associative; a is of the lower ranks, unless it is commutative. "
      "Any numpy dtype without references is an element, records and raw bytes (\"V16\") too. It may run "
      "in another thread. It must not keep a or b, and must not wait for tutti. If it raises an exception, "
      "the call raises it on this rank, and the group is aborted on all ranks.",
      py::arg("function"), py::arg("commutative") = false);
}

}  // namespace
}  // namespace tutti::python

PYBIND11_MODULE(_native, module) {
  using namespace tutti::python;
  module.doc() = "The native part of tutti; import tutti instead.";
  py::class_<OpenGroup, SharedGroup> group(
      module, "Group",
      "Ranks that communicate, in an order. Used by one thread at a time: give each thread a stream().");
  define_ops(module);
  define_registered_buffer(module);
  define_group(group);
  define_parts(group);
  define_work(module);
  define_queue(module);
  define_world(module, group);
  define_collectives(module, group);
  define_uneven_collectives(module, group);
  define_tensors(module);
  define_plans(module, group);
}

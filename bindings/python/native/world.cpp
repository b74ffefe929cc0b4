// init(): finds the ranks by a launcher or by an object of the program, such as a communicator of mpi4py.
// Knows no collective.
#include "bindings/python/native/world.hpp"

#include <algorithm>
#include <csignal>
#include <string>

namespace tutti::python {
namespace {

// Never destroyed: the interpreter may be gone by then. Emptied by finalize().
SharedGroup& first_world() {
  static auto* group = new SharedGroup;
  return *group;
}

// The exception of a program's function, kept while C++ propagates its message.
struct Raised {
  std::optional<py::error_already_set> error;

  template <class Function>
  auto call(const Function& function) {
    const py::gil_scoped_acquire gil;
    try {
      return function();
    } catch (py::error_already_set& raised) {
      const std::string text = raised.what();
      error.emplace(std::move(raised));
      throw std::runtime_error(text);
    }
  }
};

// The start runs outside of the interpreter, where Python's own handler of Ctrl-C would only set a flag.
class EndOnInterrupt {
 public:
  EndOnInterrupt() {
    const py::module_ signal = py::module_::import("signal");
    const py::module_ threading = py::module_::import("threading");
    is_on_ = signal.attr("getsignal")(SIGINT).is(signal.attr("default_int_handler")) &&
             threading.attr("current_thread")().is(threading.attr("main_thread")());
    if (is_on_) before_ = PyOS_setsig(SIGINT, SIG_DFL);
  }
  ~EndOnInterrupt() {
    if (is_on_) PyOS_setsig(SIGINT, before_);
  }
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;

 private:
  bool is_on_ = false;
  PyOS_sighandler_t before_ = SIG_DFL;
};

AllgatherBytes exchange_of(const py::object& comm, Raised* raised) {
  return [comm = comm.ptr(), raised](std::string_view mine) {
    return raised->call([&] {
      std::vector<std::string> all;
      const py::object values = py::handle(comm).attr("allgather")(py::bytes(mine.data(), mine.size()));
      for (const py::handle value : py::iter(values)) all.push_back(py::cast<std::string>(value));
      return all;
    });
  };
}

PutBytes put_of(const py::object& store, Raised* raised) {
  return [store = store.ptr(), raised](const std::string& key, const std::string& value) {
    raised->call([&] { py::handle(store).attr("set")(key, py::bytes(value)); });
  };
}

GetBytes get_of(const py::object& store, Raised* raised) {
  return [store = store.ptr(), raised](const std::string& key) {
    return raised->call([&] {
      const py::object value = py::handle(store).attr("get")(key);
      return py::bytes(value).cast<std::string>();
    });
  };
}

// Empty where the store has no such method.
EraseBytes erase_of(const py::object& store) {
  if (!py::hasattr(store, "delete_key")) return {};
  return [store = store.ptr()](const std::string& key) {
    const py::gil_scoped_acquire gil;
    try {
      py::handle(store).attr("delete_key")(key);
    } catch (const py::error_already_set& raised) {
      throw std::runtime_error(raised.what());
    }
  };
}

std::chrono::milliseconds milliseconds_of(double seconds, const char* call) {
  if (!(seconds > 0)) throw py::value_error(std::string(call) + ": timeout: expected seconds above 0");
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}

// The default world, unless there is one.
SharedGroup become_world(CommGroup group) {
  auto made = std::make_shared<OpenGroup>(std::move(group));
  SharedGroup& first = first_world();
  if (first == nullptr || !first->group().is_open()) first = made;
  return made;
}

SharedGroup init(const py::object& comm, const py::object& store, const std::string& store_prefix,
                 const std::string& unique_id, std::optional<int> rank, std::optional<int> size,
                 std::optional<double> timeout) {
  Raised raised;
  InitOptions options;
  options.unique_id = unique_id;
  options.rank = rank.value_or(-1);
  options.size = size.value_or(-1);
  if (timeout) options.timeout = milliseconds_of(*timeout, "init");
  if (!comm.is_none()) {
    options.allgather = exchange_of(comm, &raised);
    if (!rank) options.rank = comm.attr("Get_rank")().cast<int>();
    if (!size) options.size = comm.attr("Get_size")().cast<int>();
  }
  if (!store.is_none()) {
    options.put = put_of(store, &raised);
    options.get = get_of(store, &raised);
    options.erase = erase_of(store);
    options.store_prefix = store_prefix;
  }
  CommGroup group;
  try {
    const EndOnInterrupt interrupts;
    const WithoutGil without;
    group = tutti::init(options);
  } catch (const Error& error) {
    if (raised.error) throw std::move(*raised.error);
    raise(error, "init", options.rank);
  }
  return become_world(std::move(group));
}

// The successor of the default world becomes the default world.
template <class Make>
SharedGroup change(const SharedGroup& group, const char* call, const Make& make) {
  SharedGroup made = guarded(*group, call, [&] {
    check_may_wait();
    const EndOnInterrupt interrupts;
    CommGroup successor;
    {
      const CommGroup handle = group->group();  // another thread may close the group meanwhile
      const WithoutGil without;
      successor = make(handle);
    }
    return std::make_shared<OpenGroup>(std::move(successor));
  });
  if (first_world() == group) first_world() = made;
  group->close();
  return made;
}

SharedGroup shrink(const SharedGroup& group, const std::vector<int>& left_out) {
  return change(group, "shrink", [&](const CommGroup& g) { return g.shrink(left_out); });
}

SharedGroup grow(const SharedGroup& group, int new_size) {
  return change(group, "grow", [&](const CommGroup& g) { return g.grow(new_size); });
}

SharedGroup reconfigure(const SharedGroup& group, int new_size, const std::vector<int>& left_out) {
  return change(group, "reconfigure", [&](const CommGroup& g) { return g.reconfigure(new_size, left_out); });
}

SharedGroup join(const std::string& invitation, std::optional<double> timeout) {
  CommGroup group;
  try {
    const auto limit = timeout ? milliseconds_of(*timeout, "join") : std::chrono::milliseconds(0);
    const EndOnInterrupt interrupts;
    const WithoutGil without;
    group = tutti::join(invitation, limit);
  } catch (const Error& error) {
    raise(error, "join", -1);
  }
  return become_world(std::move(group));
}

void finalize() {
  const SharedGroup last = std::exchange(first_world(), nullptr);
  if (last != nullptr) last->close();
}

void define_changes(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) {
  group.def("shrink", &shrink,
            "The group that goes on without its dead members and those of left_out: the survivors in their "
            "old order, with ranks from 0. Every survivor calls it, with an equal list; also in a failed "
            "group, any number of times, and if rank 0 died. Closes this group; its successor is the "
            "default world if this group was. Arrays of calls that failed have undefined contents.",
            py::arg("left_out") = std::vector<int>());
  group.def(
      "grow", &grow,
      "The group with processes that called tutti.join() with an invitation of it; they get the highest "
      "ranks. Waits until there are new_size members; 0: admits the processes that wait. Otherwise as "
      "shrink().",
      py::arg("new_size") = 0);
  group.def("reconfigure", &reconfigure,
            "shrink() and grow() at once: the survivors without left_out, and processes that join, up to "
            "new_size members.",
            py::arg("new_size") = 0, py::arg("left_out") = std::vector<int>());
  group.def(
      "member_ids",
      [](const SharedGroup& g) { return guarded(*g, "member_ids", [&] { return g->group().member_ids(); }); },
      "Numbers of the members, in rank order, that they keep in all successors: their ranks in the first "
      "group, and higher ones for processes that joined. So a successor tells who is missing.");
  group.def(
      "invitation",
      [](const SharedGroup& g) { return guarded(*g, "invitation", [&] { return g->group().invitation(); }); },
      "Text with which a process can join this group, while one of its first 8 members lives. It holds the "
      "secret of the job.");
  module.def(
      "join", &join,
      "Join a running group by its invitation and return its successor, once its members call grow() or "
      "reconfigure(). It becomes the default world of this module. timeout: the longest wait, in seconds.",
      py::arg("invitation"), py::kw_only(), py::arg("timeout") = py::none());
}

}  // namespace

const SharedGroup& world() {
  const SharedGroup& group = first_world();
  if (group == nullptr || !group->group().is_open()) {
    raise(Error(StatusCode::invalid_argument, -1, "there is no world yet: call tutti.init() first"), "", -1);
  }
  return group;
}

void define_world(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) {
  define_changes(module, group);
  module.def(
      "init", &init,
      "Join the job and return the group of all its ranks, which becomes the default world of this module. "
      "Under a launcher (tutti run, mpiexec, mpirun, srun, torchrun) no argument is needed. comm: an "
      "mpi4py communicator. store with rank and size: has set(key, value) and a get(key) that waits, as "
      "torch's stores; with delete_key(key), keys are erased afterwards. unique_id with rank and size: of "
      "make_unique_id(), handed to all ranks. timeout: the longest wait, in seconds. A second call makes a "
      "new world.",
      py::kw_only(), py::arg("comm") = py::none(), py::arg("store") = py::none(),
      py::arg("store_prefix") = "tutti", py::arg("unique_id") = "", py::arg("rank") = py::none(),
      py::arg("size") = py::none(), py::arg("timeout") = py::none());
  module.def("finalize", &finalize,
             "Leave the default world of this module; done at exit anyway. Does nothing without one.");
  module.def(
      "is_initialized", [] { return first_world() != nullptr && first_world()->group().is_open(); },
      "Whether there is a default world.");
  module.def(
      "world", [] { return world(); }, "The default world, whose functions this module has.");
  module.def("make_unique_id", &make_unique_id,
             "Text that identifies a job: one process makes it and hands it to all ranks, which pass it to "
             "init().");
  module.def(
      "version", [] { return std::string(version()); }, "The version of the library.");
  module.def(
      "rank", [] { return world()->group().rank(); }, "This process's rank in the world.");
  module.def(
      "size", [] { return world()->group().size(); }, "The number of ranks of the world.");
  module.def(
      "local_rank", [] { return world()->group().local_rank(); }, "This rank among those of its node.");
  module.def(
      "local_size", [] { return world()->group().local_size(); }, "The number of ranks of this node.");
  // All worlds say goodbye before the interpreter ends: a rank that just ends is taken for dead.
  py::module_::import("atexit").attr("register")(py::cpp_function(&OpenGroup::close_all));
}

}  // namespace tutti::python

// The extension module tutti._torch, which tutti.torch registers with torch.distributed. Knows no collective.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <chrono>
#include <string>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/completion_threads.hpp"

namespace tutti::torch_binding {
namespace {

namespace py = pybind11;

c10::intrusive_ptr<BackendBase> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       double timeout_seconds, bool ends_store) {
  const auto timeout =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(timeout_seconds));
  return c10::make_intrusive<TuttiBackend>(store, rank, size, timeout, ends_store);
}

at::Tensor allocate(const c10::intrusive_ptr<BackendBase>& backend, const std::vector<std::int64_t>& sizes,
                    const at::Tensor& like) {
  auto* ours = dynamic_cast<TuttiBackend*>(backend.get());
  if (ours == nullptr) throw py::type_error("tutti.torch.empty: group: its backend for the CPU is not tutti");
  return ours->allocate(sizes, like.options());
}

std::vector<int> dead_ranks(const c10::intrusive_ptr<BackendBase>& backend) {
  return dynamic_cast<TuttiBackend&>(*backend).dead_ranks();
}

bool is_tutti(const py::object& backend) {
  return py::isinstance<BackendBase>(backend) &&
         dynamic_cast<TuttiBackend*>(backend.cast<c10::intrusive_ptr<BackendBase>>().get()) != nullptr;
}

// Operations end with their groups; attached callbacks may finish, unless they wait for something else.
void close_all() {
  constexpr std::chrono::seconds kCallbackTime{2};
  Membership::close_all();
  CompletionThreads::instance().wait_until_idle(kCallbackTime);
}

}  // namespace
}  // namespace tutti::torch_binding

PYBIND11_MODULE(_torch, module) {
  using namespace tutti::torch_binding;
#if TORCH_VERSION_MAJOR >= 2
  py::class_<BackendOptions, c10d::Backend::Options, c10::intrusive_ptr<BackendOptions>>(
      module, "Options", "What a process group was made with.")
      .def("__copy__", [](const BackendOptions& own) { return c10::make_intrusive<BackendOptions>(own); })
      .def("__deepcopy__", [](const BackendOptions& own, const py::dict&) {
        return c10::make_intrusive<BackendOptions>(own);
      });
  py::class_<TuttiBackend, c10d::Backend, c10::intrusive_ptr<TuttiBackend>>(module, "Backend")
      .def_property_readonly("options", &TuttiBackend::getBackendOptions);
#endif
  module.doc() = "The native part of tutti.torch; import that instead.";
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.def("create", &create, "The backend for this rank of a process group; every rank of it calls.",
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout_seconds"),
             py::arg("ends_store"), py::call_guard<py::gil_scoped_release>());
  module.def("allocate", &allocate,
             "A tensor in memory shared by the ranks of this node, with the dtype of `like`.",
             py::arg("backend"), py::arg("sizes"), py::arg("like"), py::call_guard<py::gil_scoped_release>());
  module.def("dead_ranks", &dead_ranks, "The ranks of a failed group that have died; the others agree.",
             py::arg("backend"), py::call_guard<py::gil_scoped_release>());
  module.def("is_tutti", &is_tutti, "Whether this is a backend that create() made.", py::arg("backend"));
  module.def("close_all", &close_all, "Leave all groups: the interpreter ends.",
             py::call_guard<py::gil_scoped_release>());
}

// Reads a kernel's attributes. See kernel.hpp.
#include "bindings/tensorflow/kernel.hpp"

#include <memory>
#include <string_view>

#include "bindings/tensorflow/operations.hpp"

namespace tutti::tensorflow {
namespace {

// Names come round, so that ranks remember to have agreed on them. More eager calls than these are never under way at a time.
constexpr std::uint32_t kUnnamedCount = 64;

constexpr const char* kNames[kKindCount] = {"allreduce", "allgather", "broadcast", "reducescatter",
                                            "alltoall",  "join",      "barrier"};

class Attributes {
 public:
  explicit Attributes(TF_OpKernelConstruction* construction) : construction_(construction) {}

  int integer(const char* name) {
    std::int32_t value = 0;
    if (is_ok()) TF_OpKernelConstruction_GetAttrInt32(construction_, name, &value, status_);
    return value;
  }
  double number(const char* name) {
    float value = 0;
    if (is_ok()) TF_OpKernelConstruction_GetAttrFloat(construction_, name, &value, status_);
    return static_cast<double>(value);
  }
  bool flag(const char* name) {
    unsigned char value = 0;
    if (is_ok()) TF_OpKernelConstruction_GetAttrBool(construction_, name, &value, status_);
    return value != 0;
  }
  std::string text(const char* name) {
    std::int32_t list_size = 0;
    std::int32_t bytes = 0;
    if (is_ok()) TF_OpKernelConstruction_GetAttrSize(construction_, name, &list_size, &bytes, status_);
    std::string value(is_ok() && bytes > 0 ? static_cast<std::size_t>(bytes) : 0, '\0');
    if (!value.empty()) {
      TF_OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(), status_);
    }
    return value;
  }
  bool is_ok() const { return status_.is_ok(); }
  void fail() { TF_OpKernelConstruction_Failure(construction_, status_); }

 private:
  TF_OpKernelConstruction* construction_;
  Status status_;
};

}  // namespace

const char* name_of(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string Kernel::name_of(ProcessSet& set) const {
  std::string text = tensorflow::name_of(kind);
  if (!name.empty()) return text + "." + name;
  const std::uint32_t number = set.unnamed[static_cast<std::size_t>(kind)]++;
  return text + ".eager." + std::to_string(number % kUnnamedCount);
}

Kernel* make_kernel(TF_OpKernelConstruction* construction, Kind kind) {
  Attributes attributes(construction);
  auto kernel = std::make_unique<Kernel>();
  kernel->kind = kind;
  kernel->process_set = attributes.integer("process_set");
  kernel->name = attributes.text("tensor_name");
  if (kind == Kind::allreduce || kind == Kind::reducescatter) {
    kernel->reduce_op = attributes.integer("reduce_op");
    kernel->prescale = attributes.number("prescale");
    kernel->postscale = attributes.number("postscale");
  }
  if (kind == Kind::broadcast) kernel->root = attributes.integer("root");
  const bool ignores_scope = attributes.flag("ignore_name_scope");
  if (!attributes.is_ok()) {
    attributes.fail();
    return nullptr;
  }
  const TF_StringView node = TF_OpKernelConstruction_GetName(construction);
  std::string_view node_name(node.data, node.len);
  // An eager operation's node has the name of its type; in a graph each has one of its own.
  kernel->is_eager = node_name == operation_name(kind);
  if (!kernel->is_eager && kernel->name.empty()) {
    if (ignores_scope) node_name.remove_prefix(node_name.rfind('/') + 1);
    kernel->name = node_name;
  }
  return kernel.release();
}

}  // namespace tutti::tensorflow

// The C interface of joining, groups and shared memory. Knows the public C++ interface only; tutti.h has the
// contracts.
#include <algorithm>
#include <optional>

#include "bindings/c/handles.hpp"
#include "runtime/base/types.hpp"
#include "tutti/c_handles.hpp"

using namespace tutti::c;

namespace {

// A closed group (of a negative colour) is NULL.
tutti_group_t new_handle(tutti::CommGroup group) {
  return group.is_open() ? new TuttiGroup{std::move(group)} : nullptr;
}

// -1 if `ask` fails.
template <class Ask>
int number_of(tutti_group_t group, const Ask& ask) {
  int number = -1;
  static_cast<void>(guarded([&] { number = ask(group_of(group)); }));
  return number;
}

template <class Make>
tutti_status_t make_part(const char* call, tutti_group_t group, tutti_group_t* part, const Make& make) {
  return guarded([&] {
    check_place(call, "part", part);
    *part = new_handle(make(group_of(group)));
  });
}

}  // namespace

const tutti::CommGroup& tutti::c::group_of(tutti_group_t handle) {
  static const CommGroup kClosed;
  return handle == nullptr ? kClosed : handle->group;
}

tutti_status_t tutti_init(const tutti_init_options_t* options, tutti_group_t* world) {
  return guarded([&] {
    check_place("init", "world", world);
    *world = new_handle(tutti::init(options == nullptr ? tutti::InitOptions{} : init_options_of(*options)));
  });
}

tutti_status_t tutti_make_unique_id(tutti_unique_id_t* id) {
  return guarded([&] {
    check_place("make_unique_id", "id", id);
    const std::string text = tutti::make_unique_id();
    if (text.size() >= sizeof id->text) {
      throw tutti::Error(tutti::StatusCode::internal, -1, "make_unique_id: the id does not fit its type");
    }
    std::memset(id->text, 0, sizeof id->text);
    std::memcpy(id->text, text.data(), text.size());
  });
}

int tutti_group_rank(tutti_group_t group) {
  return number_of(group, [](const tutti::CommGroup& g) { return g.rank(); });
}
int tutti_group_size(tutti_group_t group) {
  return number_of(group, [](const tutti::CommGroup& g) { return g.size(); });
}
int tutti_group_local_rank(tutti_group_t group) {
  return number_of(group, [](const tutti::CommGroup& g) { return g.local_rank(); });
}
int tutti_group_local_size(tutti_group_t group) {
  return number_of(group, [](const tutti::CommGroup& g) { return g.local_size(); });
}

tutti_group_t tutti::make_c_handle(const CommGroup& group) {
  static_cast<void>(group.size());  // throws for a closed one
  return new_handle(group);
}

void tutti_group_close(tutti_group_t* group) {
  if (group != nullptr) delete std::exchange(*group, nullptr);
}

tutti_status_t tutti_group_split(tutti_group_t group, int colour, int key, tutti_group_t* part) {
  return make_part("split", group, part, [&](const tutti::CommGroup& g) { return g.split(colour, key); });
}

tutti_status_t tutti_group_split_by_node(tutti_group_t group, tutti_group_t* part) {
  return make_part("split_by_node", group, part, [](const tutti::CommGroup& g) { return g.split_by_node(); });
}

tutti_status_t tutti_group_create(tutti_group_t group, const int* ranks, size_t rank_count,
                                  tutti_group_t* part) {
  return tutti_group_create_tagged(group, ranks, rank_count, nullptr, part);
}

tutti_status_t tutti_group_create_tagged(tutti_group_t group, const int* ranks, size_t rank_count,
                                         const char* tag, tutti_group_t* part) {
  return make_part("create", group, part, [&](const tutti::CommGroup& g) {
    if (ranks == nullptr && rank_count > 0) refuse("create: ranks: a null pointer");
    return g.create({ranks, rank_count}, tag == nullptr ? "" : tag);
  });
}

tutti_status_t tutti_group_stream(tutti_group_t group, int number, tutti_group_t* stream) {
  return guarded([&] {
    check_place("stream", "stream", stream);
    *stream = new_handle(group_of(group).stream(number));
  });
}

tutti_status_t tutti_group_close_stream(tutti_group_t group, int number) {
  return guarded([&] { group_of(group).close_stream(number); });
}

tutti_status_t tutti_group_abort(tutti_group_t group, const char* why) {
  return guarded([&] { group_of(group).abort(why == nullptr ? "" : why); });
}

tutti_status_t tutti_group_shrink(tutti_group_t group, const int* left_out, size_t left_out_count,
                                  tutti_group_t* successor) {
  return make_part("shrink", group, successor, [&](const tutti::CommGroup& g) {
    if (left_out == nullptr && left_out_count > 0) refuse("shrink: left_out: a null pointer");
    return g.shrink({left_out, left_out_count});
  });
}

tutti_status_t tutti_group_grow(tutti_group_t group, int new_size, tutti_group_t* successor) {
  return make_part("grow", group, successor, [&](const tutti::CommGroup& g) { return g.grow(new_size); });
}

tutti_status_t tutti_group_reconfigure(tutti_group_t group, int new_size, const int* left_out,
                                       size_t left_out_count, tutti_group_t* successor) {
  return make_part("reconfigure", group, successor, [&](const tutti::CommGroup& g) {
    if (left_out == nullptr && left_out_count > 0) refuse("reconfigure: left_out: a null pointer");
    return g.reconfigure(new_size, {left_out, left_out_count});
  });
}

tutti_status_t tutti_group_member_ids(tutti_group_t group, int* ids, size_t id_count) {
  return guarded([&] {
    const std::vector<int> members = group_of(group).member_ids();
    check_place("member_ids", "ids", ids);
    if (id_count < members.size())
      refuse("member_ids: id_count: " + std::to_string(id_count) + "; expected at least the " +
             std::to_string(members.size()) + " members of the group");
    std::copy(members.begin(), members.end(), ids);
  });
}

tutti_status_t tutti_group_invitation(tutti_group_t group, char* text, size_t text_bytes,
                                      size_t* needed_bytes) {
  return guarded([&] {
    const std::string invitation = group_of(group).invitation();
    if (needed_bytes != nullptr) *needed_bytes = invitation.size() + 1;
    if (text == nullptr || text_bytes <= invitation.size())
      refuse("invitation: text_bytes: " + std::to_string(text_bytes) + "; expected at least " +
             std::to_string(invitation.size() + 1));
    std::memcpy(text, invitation.c_str(), invitation.size() + 1);
  });
}

tutti_status_t tutti_join(const char* invitation, int64_t timeout_ms, tutti_group_t* successor) {
  return guarded([&] {
    check_place("join", "successor", successor);
    *successor = new_handle(
        tutti::join(invitation == nullptr ? "" : invitation, std::chrono::milliseconds(timeout_ms)));
  });
}

tutti_status_t tutti_group_failure(tutti_group_t group) {
  return guarded([&] {
    if (const std::optional<tutti::Error> failure = group_of(group).failure()) throw tutti::Error(*failure);
  });
}

// -- choice, memory -----------------------------------------------------------------------------------------

tutti_status_t tutti_explain_algorithm(tutti_collective_t collective, size_t count, tutti_dtype_t dtype,
                                       tutti_op_t op, tutti_group_t group,
                                       const tutti_call_options_t* options, char* text, size_t text_bytes) {
  constexpr const char* kCall = "explain_algorithm";
  return guarded([&] {
    check_place(kCall, "text", text_bytes == 0 ? nullptr : text);
    const CallArguments call(kCall, options);
    const tutti::Collective which = call.collective(collective);
    const tutti::Reduction reduction =
        tutti::is_reducing(which) ? call.reduction(op, dtype) : tutti::Reduction();
    const std::string why = group_of(group).explain_algorithm(which, count, call.dtype(dtype), reduction);
    const std::size_t bytes = std::min(why.size(), text_bytes - 1);
    std::memcpy(text, why.data(), bytes);
    text[bytes] = '\0';
  });
}

tutti_status_t tutti_alloc(size_t bytes, tutti_group_t group, void** memory) {
  return guarded([&] {
    check_place("alloc", "memory", memory);
    *memory = tutti::alloc(group_of(group), bytes);
  });
}

tutti_status_t tutti_free(void* memory, tutti_group_t group) {
  return guarded([&] { tutti::free(group_of(group), memory); });
}

tutti_status_t tutti_register_buffer(const void* memory, size_t bytes, tutti_group_t group,
                                     tutti_buffer_t* buffer) {
  return guarded([&] {
    check_place("register_buffer", "buffer", buffer);
    *buffer = new TuttiBuffer{group_of(group).register_buffer(memory, bytes)};
  });
}

void tutti_deregister_buffer(tutti_buffer_t* buffer) {
  if (buffer != nullptr) delete std::exchange(*buffer, nullptr);
}

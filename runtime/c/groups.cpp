// The C interface of joining, groups, operations under way and shared memory. Knows the public C++ interface
// only; what each function does is said in tutti.h.
#include "runtime/base/types.hpp"
#include "runtime/c/handles.hpp"

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

// Lets go of the operation in any case.
tutti_status_t finish(tutti_work_t* work) {
  const std::unique_ptr<TuttiWork> done(std::exchange(*work, nullptr));
  return guarded([&] {
    done->work.wait();
    if (done->source != nullptr) *done->source = done->work.source();
  });
}

// `is_done` says whether the operation has ended.
template <class IsDone>
tutti_status_t look(const char* call, tutti_work_t* work, int* is_complete, const IsDone& is_done) {
  bool is_over = true;
  const tutti_status_t status = guarded([&] {
    check_place(call, "work", work);
    check_place(call, "is_complete", is_complete);
    if (*work != nullptr) is_over = is_done((*work)->work);
  });
  if (work == nullptr || is_complete == nullptr) return status;
  *is_complete = is_over ? 1 : 0;
  if (*work == nullptr || !is_over) return status;
  if (status == TUTTI_OK) return finish(work);
  tutti_work_free(work);
  return status;
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
  return make_part("create", group, part, [&](const tutti::CommGroup& g) {
    if (ranks == nullptr && rank_count > 0) refuse("create: ranks: a null pointer");
    return g.create({ranks, rank_count});
  });
}

tutti_status_t tutti_group_abort(tutti_group_t group, const char* why) {
  return guarded([&] { group_of(group).abort(why == nullptr ? "" : why); });
}

// -- operations under way -----------------------------------------------------------------------------------

tutti_status_t tutti_wait(tutti_work_t* work) {
  if (work != nullptr && *work != nullptr) return finish(work);
  return guarded([&] { check_place("wait", "work", work); });
}

tutti_status_t tutti_wait_for(tutti_work_t* work, int64_t at_most_ms, int* is_complete) {
  return look("wait_for", work, is_complete,
              [&](const tutti::Work& w) { return w.wait_for(duration_of(at_most_ms)); });
}

tutti_status_t tutti_test(tutti_work_t* work, int* is_complete) {
  return look("test", work, is_complete, [](const tutti::Work& w) { return w.test(); });
}

void tutti_work_free(tutti_work_t* work) {
  if (work != nullptr) delete std::exchange(*work, nullptr);
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

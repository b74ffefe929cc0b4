// The C interface of joining, groups, operations under way and shared memory. Knows the public C++ interface
// only; tutti.h has the contracts.
#include <optional>

#include "bindings/c/handles.hpp"
#include "runtime/base/types.hpp"

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

// Of a wait that has failed: where it was refused, as in a completion callback, the operation goes on.
bool has_ended(const tutti::Work& work) {
  try {
    return work.test();
  } catch (const tutti::Error&) {
    return true;  // a child of fork()
  }
}

// Calls `wait`, then frees the operation if it has ended; throws its error.
template <class Wait>
void wait_and_free(tutti_work_t* work, const Wait& wait) {
  if (*work == nullptr) return;
  try {
    wait((*work)->work);
  } catch (const tutti::Error&) {
    if (has_ended((*work)->work)) tutti_work_free(work);
    throw;
  }
  if ((*work)->source != nullptr) *(*work)->source = (*work)->work.source();
  tutti_work_free(work);
}

void wait_and_free(tutti_work_t* work) {
  wait_and_free(work, [](const tutti::Work& w) { w.wait(); });
}

// `is_done` says whether the operation has ended.
template <class IsDone>
tutti_status_t look(const char* call, tutti_work_t* work, int* is_complete, const IsDone& is_done) {
  return guarded([&] {
    check_place(call, "work", work);
    check_place(call, "is_complete", is_complete);
    bool is_over = true;
    try {
      is_over = *work == nullptr || is_done((*work)->work);
    } catch (const tutti::Error&) {
      if (has_ended((*work)->work)) {
        *is_complete = 1;
        tutti_work_free(work);
      }
      throw;
    }
    *is_complete = is_over ? 1 : 0;
    if (is_over) wait_and_free(work);
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

tutti_status_t tutti_group_failure(tutti_group_t group) {
  return guarded([&] {
    if (const std::optional<tutti::Error> failure = group_of(group).failure()) throw tutti::Error(*failure);
  });
}

// -- operations under way -----------------------------------------------------------------------------------

tutti_status_t tutti_wait(tutti_work_t* work) {
  return guarded([&] {
    check_place("wait", "work", work);
    wait_and_free(work);
  });
}

tutti_status_t tutti_wait_within(tutti_work_t* work, int64_t limit_ms) {
  return guarded([&] {
    check_place("wait_within", "work", work);
    wait_and_free(work, [&](const tutti::Work& w) { w.wait_within(duration_of(limit_ms)); });
  });
}

tutti_status_t tutti_work_missing(tutti_work_t work, char* text, size_t text_bytes) {
  return guarded([&] {
    check_place("work_missing", "text", text);
    if (text_bytes == 0) refuse("work_missing: text_bytes: 0, expected at least 1");
    const std::string missing = work == nullptr ? "" : work->work.missing();
    const size_t kept = missing.copy(text, text_bytes - 1);
    text[kept] = '\0';
  });
}

tutti_status_t tutti_wait_for(tutti_work_t* work, int64_t at_most_ms, int* is_complete) {
  return look("wait_for", work, is_complete,
              [&](const tutti::Work& w) { return w.wait_for(duration_of(at_most_ms)); });
}

tutti_status_t tutti_test(tutti_work_t* work, int* is_complete) {
  return look("test", work, is_complete, [](const tutti::Work& w) { return w.test(); });
}

tutti_status_t tutti_wait_unless(tutti_work_t* work, int (*is_interrupted)(void* context), void* context,
                                 int* is_complete) {
  struct Question {
    int (*ask)(void* context);
    void* context;
  } question{is_interrupted, context};
  if (is_interrupted == nullptr) {
    return guarded([] { refuse("wait_unless: is_interrupted: a null pointer"); });
  }
  return look("wait_unless", work, is_complete, [&](const tutti::Work& w) {
    const auto ask = [](void* given) {
      const auto& asked = *static_cast<const Question*>(given);
      return asked.ask(asked.context) != 0;
    };
    return w.wait_unless(ask, &question);
  });
}

tutti_status_t tutti_wait_all(tutti_work_t* works, size_t work_count) {
  return guarded([&] {
    if (work_count > 0) check_place("wait_all", "works", works);
    std::optional<tutti::Error> first;
    for (size_t i = 0; i < work_count; ++i) {
      try {
        wait_and_free(&works[i]);
      } catch (const tutti::Error& error) {
        if (!first) first = error;
      }
    }
    if (first) throw tutti::Error(*first);
  });
}

tutti_status_t tutti_on_complete(tutti_work_t work, tutti_complete_function_t callback, void* context) {
  return guarded([&] {
    if (callback == nullptr) refuse("on_complete: callback: a null pointer");
    const tutti::Work operation = work == nullptr ? tutti::Work() : work->work;
    operation.on_complete([callback, context](const tutti::Error* error) {
      if (error == nullptr) return callback(context, TUTTI_OK, "", -1);
      callback(context, static_cast<tutti_status_t>(error->code()), error->what(), error->peer());
    });
  });
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

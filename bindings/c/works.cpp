// The C interface of operations under way: waiting, testing, callbacks. Knows the public C++ interface only;
// tutti.h has the contracts.
#include "bindings/c/handles.hpp"

using namespace tutti::c;

namespace {

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
tutti_status_t test_and_free(const char* call, tutti_work_t* work, int* is_complete, const IsDone& is_done) {
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
  return test_and_free("wait_for", work, is_complete,
                       [&](const tutti::Work& w) { return w.wait_for(duration_of(at_most_ms)); });
}

tutti_status_t tutti_test(tutti_work_t* work, int* is_complete) {
  return test_and_free("test", work, is_complete, [](const tutti::Work& w) { return w.test(); });
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
  return test_and_free("wait_unless", work, is_complete, [&](const tutti::Work& w) {
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

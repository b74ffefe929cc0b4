// Checks of the C programs in this folder: a failed one says where and what the library says, and the program
// goes on. Knows the C interface only.
#ifndef TUTTI_TESTS_C_CHECK_H
#define TUTTI_TESTS_C_CHECK_H

#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"

static int failures = 0;

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      ++failures;                                                                                         \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, tutti_last_error()); \
    }                                                                                                     \
  } while (0)

#define CHECK_OK(call) CHECK((call) == TUTTI_OK)

// The call fails with this status, and its sentence holds this text.
#define CHECK_FAILS(call, status, text)              \
  do {                                               \
    CHECK((call) == (status));                       \
    CHECK(strstr(tutti_last_error(), text) != NULL); \
  } while (0)

#endif

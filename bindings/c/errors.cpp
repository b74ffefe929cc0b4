// Error returns of the C interface, and the version of the library. Knows no group.
#include <array>
#include <system_error>

#include "bindings/c/handles.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"
#include "runtime/base/version.hpp"

namespace tutti::c {
namespace {

// An array, because it can neither fail nor end before the thread's last destructor has run.
struct LastError {
  std::array<char, 4096> text{};
  int peer = -1;
};
thread_local LastError last_error;

tutti_status_t record(StatusCode code, int peer, const char* text) {
  const std::size_t bytes = std::min(std::strlen(text), last_error.text.size() - 1);
  std::memcpy(last_error.text.data(), text, bytes);
  last_error.text[bytes] = '\0';
  last_error.peer = peer;
  return static_cast<tutti_status_t>(code);
}

}  // namespace

void refuse(const std::string& message) { throw Error(StatusCode::invalid_argument, -1, message); }

tutti_status_t record_failure() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return record(error.code(), error.peer(), error.what());
  } catch (const std::bad_alloc&) {
    return record(StatusCode::resource_exhausted, -1, "out of memory");
  } catch (const std::system_error& error) {  // of the system's limits
    return record(StatusCode::resource_exhausted, -1, error.what());
  } catch (const std::exception& error) {
    return record(StatusCode::internal, -1, error.what());
  } catch (...) {
    return record(StatusCode::internal, -1, "an exception of unknown type");
  }
}

}  // namespace tutti::c

const char* tutti_version(void) { return tutti::version_text().data(); }
int tutti_abi_version(void) { return TUTTI_ABI_VERSION; }

const char* tutti_status_name(tutti_status_t status) {
  if (status < TUTTI_OK || status > TUTTI_INTERNAL) return "unknown status";
  return tutti::to_string(static_cast<tutti::StatusCode>(status)).data();
}

size_t tutti_dtype_bytes(tutti_dtype_t dtype) {
  if (dtype < TUTTI_I8 || dtype > TUTTI_OPAQUE) return 0;
  return tutti::size_of(static_cast<tutti::Dtype>(dtype));
}

const char* tutti_last_error(void) { return tutti::c::last_error.text.data(); }
int tutti_last_error_peer(void) { return tutti::c::last_error.peer; }

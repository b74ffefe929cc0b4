// A Store on a rendezvous server that speaks HTTP: PUT and GET of /scope/key, as Horovod's does. Knows no
// launcher.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/job/launchers/store.hpp"

namespace tutti::detail {

// What matters of an answer's head.
struct HttpHead {
  int status = 0;
  std::optional<std::size_t> body_bytes;  // nullopt: up to the end of the connection
};

// The first line and then the others, without their ends. Errors: invalid_argument.
Result<HttpHead> parse_http_head(std::string_view head);

// `address` is "host:port". Each request has a connection of its own. The server asks nobody who he is.
std::shared_ptr<Store> make_http_store(std::string address);

}  // namespace tutti::detail

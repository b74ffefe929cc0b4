// A Store on a rendezvous server that speaks HTTP: PUT and GET of /scope/key, as Horovod's does. Knows no
// launcher.
#pragma once

#include <memory>
#include <string>

#include "runtime/job/launchers/store.hpp"

namespace tutti::detail {

// Each request has its own connection, and the server does not authenticate clients. `module_path`: as
// module_folders() takes it. Put and get return unsupported where the module of the HTTP client cannot be
// loaded.
std::shared_ptr<Store> make_http_store(std::string host, int port, std::string module_path);

}  // namespace tutti::detail

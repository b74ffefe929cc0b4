// Defaults for drivers whose network lacks an ability. Knows no network; see wire_driver.hpp.
#include "transports/message/wire_driver.hpp"

namespace tutti::message {

void WireDriver::flush(Link&) {}

void WireDriver::fetch(RecvOp&, void*) { TUTTI_ASSERT(false, "this driver has no remote messages"); }

void WireDriver::pump(RecvOp&) {}

bool WireDriver::cancel_send(SendOp&) { return false; }

bool WireDriver::cancel_fetch(RecvOp&) { return false; }

bool WireDriver::finish() { return true; }

void WireDriver::abandon() {}

}  // namespace tutti::message

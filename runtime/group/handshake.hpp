// Proves to each other that two processes know the secret of one job, without sending it: challenge and
// response with keyed BLAKE2b. Pure functions; knows no socket.
//
//   who connects                           who listens
//   hello     nonce_m, job         ->
//                                  <-     challenge  nonce_h, MAC("hub", nonce_m, nonce_h, claim), claim
//   proof     MAC("member", nonce_m, nonce_h, claim), claim (rank, size, host, build)  ->
//                                  <-     refused with a reason, or later ready
//
// The roles in the MAC keep a reflected message from being a proof; the nonces keep an old one from being
// one.
#pragma once

#include <string_view>

#include "runtime/group/control_frame.hpp"

namespace tutti {

Result<Nonce> make_nonce();
Proof prove_hub(std::string_view secret, const Nonce& member, const Nonce& hub, const MemberClaim& claim);
Proof prove_member(std::string_view secret, const Nonce& member, const Nonce& hub, const MemberClaim& claim);
bool is_equal(const Proof& a, const Proof& b);  // in constant time

}  // namespace tutti

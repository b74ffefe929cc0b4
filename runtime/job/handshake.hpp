// Mutual proof that two processes know the secret of one job, without sending it: challenge and response with
// keyed BLAKE2b. Pure functions; knows no socket.
//
//   connecting side                        listening side
//   hello     nonce_m, job         ->
//                                  <-     challenge  nonce_h
//   proof     MAC("member", nonce_m, nonce_h, offer), offer  ->
//                                  <-     welcome    MAC("hub", nonce_m, nonce_h, claim), claim with offer
//   claim     MAC("claim", nonce_m, nonce_h, claim), claim (rank, size, pid, host, build)  ->
//                                  <-     refused with a reason, or later ready
//
// The offers are of TUTTI_WIRE_SECURITY. On a network all frames behind the welcome travel in records, as the
// stricter of both offers says.
//
// The connecting side proves first: a stranger learns nothing of the listening side. The roles in the MAC
// keep a reflected message from being a proof; the nonces keep an old one from being one.
#pragma once

#include <string>
#include <string_view>

#include "runtime/job/control_frame.hpp"

namespace tutti {

Result<Nonce> make_nonce();
enum class ProofRole : std::uint8_t { member, hub, claim };
Proof prove(std::string_view secret, ProofRole role, const Nonce& member, const Nonce& hub,
            const MemberClaim& claim = {});
bool is_equal(const Proof& a, const Proof& b);  // in constant time

// The protection of the frames behind the welcome. `member`: the connecting side.
WireSession make_control_session(std::string_view secret, const WireTerms& terms, const Nonce& member,
                                 const Nonce& hub, bool is_member);
// The key of all data connections of the job.
WireKey make_data_key(std::string_view secret);

// The secret as proofs use it, equal on all ranks of a job. A random one of 128 bits and more is used as it
// is. A shorter text could be guessed from an observed proof, so it is stretched by Argon2id (16 MiB, some 30
// ms). Empty stays empty. Errors: resource_exhausted.
Result<std::string> strengthen_secret(const std::string& secret, std::string_view job);
bool is_strong_secret(std::string_view secret);
// Text that cannot be guessed without the secret.
std::string name_from_secret(std::string_view secret, std::string_view job);

}  // namespace tutti

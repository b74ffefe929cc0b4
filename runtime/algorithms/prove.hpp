// Proving catalogue rows: emits all ranks' schedules of a row, runs the verifier over them and compares what
// the row claims with what was found. Used by `tutti verify` and the tests. Knows no transport.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/schedule/verify.hpp"

namespace tutti {

// One instance of a row.
struct Instance {
  std::uint32_t size = 1;
  std::uint32_t root = 0;
  bool in_place = false;
  AlgorithmParams params;
  Hierarchy hierarchy{};  // of no ranks: flat
};

// The schedules of all ranks; none if they have more than `most_steps` in all. Errors: those of the emit
// function, with the rank.
Result<std::vector<Schedule>> emit_all(const AlgorithmRow& row, const Instance& instance,
                                       std::uint64_t most_steps = ~std::uint64_t{0});

// Proves the schedules of one instance against their row: what the collective promises, rank order where the
// row does not ask for a commutative op, equal bits exactly where it claims them, rounds and blocks sent
// equal to its claim (or within it, where the claim is a bound), blocks that leave a domain. Errors:
// internal, naming row, instance and what was found instead.
Status prove(const AlgorithmRow& row, const Instance& instance, const std::vector<Schedule>& ranks);

// Proves the schedules that run in shared memory: lowered from "not in place" in both forms, and each form
// also in place where it may run so. (A form that may not is no error.) Rank order and equal bits as above.
// Nothing to prove for schedules of several channels.
Status prove_lowered(const AlgorithmRow& row, const Instance& instance, const std::vector<Schedule>& ranks);

// Proves the compressed schedules: of all messages, and of those that leave a domain. Rank order and equal bits as
// above. Besides, no value is rounded more often on its way than it crosses messages in a row, and once more as
// a result. Nothing to prove for
// collectives that do not add.
Status prove_compressed(const AlgorithmRow& row, const Instance& instance,
                        const std::vector<Schedule>& ranks);

// May the row run this instance at all?
bool is_legal(const AlgorithmRow& row, const Instance& instance);
// Does it combine in rank order, so that the op need not commute?
bool keeps_rank_order(const AlgorithmRow& row, const Instance& instance);

// Hierarchies of p ranks to prove rows with: even and uneven domains, a domain of one, interleaved ones.
// Empty for p < 3, where all are flat.
std::vector<Hierarchy> sample_hierarchies(std::uint32_t p);

}  // namespace tutti

// The table of Intel MPI's numbers, as its developer reference lists them.
#include "runtime/selection/impi_numbers.hpp"

#include <charconv>

namespace tutti {
namespace {

using C = Collective;
constexpr ImpiNumber kNumbers[] = {
    {C::allreduce, 1, "recursive doubling", "recursive_doubling", false},
    {C::allreduce, 2, "Rabenseifner's", "rabenseifner", false},
    {C::allreduce, 3, "reduce + broadcast", "reduce_broadcast", false},
    {C::allreduce, 4, "topology aware reduce + broadcast", "reduce_broadcast", true},
    {C::allreduce, 5, "binomial gather + scatter", "reduce_broadcast", true},
    {C::allreduce, 6, "topology aware binomial gather + scatter", "reduce_broadcast", true},
    {C::allreduce, 7, "Shumilin's ring", "ring", true},
    {C::allreduce, 8, "ring", "ring", false},
    {C::allreduce, 9, "k-nomial", "knomial", true},
    {C::allreduce, 10, "topology aware shared-memory flat", "one_shot", true},
    {C::allreduce, 11, "topology aware shared-memory k-nomial", "knomial", true},
    {C::allreduce, 12, "topology aware shared-memory k-ary", "knomial", true},
    {C::allgather, 1, "recursive doubling", "recursive_doubling", false},
    {C::allgather, 2, "Bruck's", "bruck", false},
    {C::allgather, 3, "ring", "ring", false},
    {C::allgather, 4, "topology aware gatherv + broadcast", "bruck", true},
    {C::allgather, 5, "k-nomial", "bruck", true},
    {C::alltoall, 1, "Bruck's", "bruck", false},
    {C::alltoall, 2, "isend/irecv + waitall", "linear", false},
    {C::alltoall, 3, "pairwise exchange", "pairwise", false},
    {C::alltoall, 4, "Plum's", "pairwise", true},
    {C::barrier, 1, "dissemination", "dissemination", false},
    {C::barrier, 2, "recursive doubling", "recursive_doubling", false},
    {C::barrier, 3, "topology aware dissemination", "dissemination", true},
    {C::barrier, 4, "topology aware recursive doubling", "recursive_doubling", true},
    {C::barrier, 5, "binomial gather + scatter", "dissemination", true},
    {C::barrier, 6, "topology aware binomial gather + scatter", "dissemination", true},
    {C::broadcast, 1, "binomial", "binomial", false},
    {C::broadcast, 2, "recursive doubling", "scatter_allgather", true},
    {C::broadcast, 3, "ring", "chain", false},
    {C::broadcast, 4, "topology aware binomial", "binomial", true},
    {C::broadcast, 5, "topology aware recursive doubling", "scatter_allgather", true},
    {C::broadcast, 6, "topology aware ring", "chain", true},
    {C::broadcast, 7, "Shumilin's", "circulant", true},
    {C::broadcast, 8, "k-nomial", "knomial", false},
    {C::broadcast, 9, "topology aware shared-memory flat", "knomial", true},
    {C::broadcast, 10, "topology aware shared-memory k-nomial", "knomial", true},
    {C::broadcast, 11, "topology aware shared-memory k-ary", "knomial", true},
    {C::gather, 1, "binomial", "binomial", false},
    {C::gather, 2, "topology aware binomial", "binomial", true},
    {C::gather, 3, "Shumilin's", "linear", true},
    {C::gather, 4, "binomial with segmentation", "binomial", true},
    {C::reduce_scatter, 1, "recursive halving", "halving", false},
    {C::reduce_scatter, 2, "pairwise exchange", "direct", true},
    {C::reduce_scatter, 3, "recursive doubling", "circulant", true},
    {C::reduce_scatter, 4, "reduce + scatterv", "circulant", true},
    {C::reduce_scatter, 5, "topology aware reduce + scatterv", "circulant", true},
    {C::reduce, 1, "Shumilin's", "circulant", true},
    {C::reduce, 2, "binomial", "binomial", false},
    {C::reduce, 3, "topology aware Shumilin's", "circulant", true},
    {C::reduce, 4, "topology aware binomial", "binomial", true},
    {C::reduce, 5, "Rabenseifner's", "rabenseifner", false},
    {C::reduce, 6, "topology aware Rabenseifner's", "rabenseifner", true},
    {C::reduce, 7, "k-nomial", "knomial", false},
    {C::scan, 1, "partial results gathering", "recursive_doubling", false},
    {C::scan, 2, "topology aware partial results gathering", "recursive_doubling", true},
    {C::exscan, 1, "partial results gathering", "recursive_doubling", false},
    {C::exscan, 2, "partial results gathering regarding layout", "recursive_doubling", true},
    {C::scatter, 1, "binomial", "binomial", false},
    {C::scatter, 2, "topology aware binomial", "binomial", true},
    {C::scatter, 3, "Shumilin's", "linear", true},
};

}  // namespace

std::span<const ImpiNumber> impi_numbers() { return kNumbers; }

std::string_view algorithm_of_number(Collective collective, std::string_view digits) {
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  for (const ImpiNumber& row : kNumbers) {
    if (row.collective == collective && row.number == number) return row.algorithm;
  }
  return {};
}

}  // namespace tutti

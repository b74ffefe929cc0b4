// Collectives with a count for each rank. Checks that all blocks lie inside their array, which the C++
// interface cannot see. Knows no transport.
#include <algorithm>
#include <string>

#include "bindings/python/native/collectives.hpp"
#include "bindings/python/native/define.hpp"

namespace tutti::python {
namespace {

// The blocks of one array, one for each rank.
struct Blocks {
  const char* call;
  const char* name;  // of the array
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> displacements;  // empty: one after the other

  // Known to another rank alone.
  Blocks(const char* of_call, const char* of_array) : call(of_call), name(of_array) {}
  Blocks(const char* of_call, const char* of_array, py::handle numbers, py::handle places, int size)
      : call(of_call), name(of_array) {
    const std::string array = name;
    counts = counts_of(numbers, call, (array + "'s counts").c_str());
    displacements = counts_of(places, call, (array + "'s displacements").c_str());
    const auto expected = static_cast<std::size_t>(size);
    expect_count(call, (array + "'s counts").c_str(), counts.size(), expected);
    if (!places.is_none()) {
      expect_count(call, (array + "'s displacements").c_str(), displacements.size(), expected);
    }
  }

  std::uint64_t begin_of(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    if (!displacements.empty()) return displacements[index];
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < index; ++i) begin += counts[i];
    return begin;
  }
  std::uint64_t count_of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }

  // Raises ValueError unless the array holds all of them; without displacements, and nothing else.
  void expect_inside(const Array& array) const {
    std::uint64_t end = 0;
    if (displacements.empty()) {
      for (const std::uint64_t count : counts) end += count;
      return expect_count(call, name, array.count(), end);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) end = std::max(end, displacements[i] + counts[i]);
    if (array.count() >= end) return;
    throw py::value_error(std::string(call) + ": " + name + ": " + std::to_string(array.count()) +
                          " elements, but the blocks end at " + std::to_string(end));
  }
};

template <class Finish>
auto allgatherv(const SharedGroup& group, py::handle input, py::handle output, py::handle counts,
                py::handle displacements, py::handle algorithm, py::handle stream) {
  constexpr const char* kCall = "allgatherv";
  const int rank = group->group().rank();
  const Blocks blocks(kCall, "output", counts, displacements, group->group().size());
  if (output.is_none()) throw py::type_error("allgatherv: output: expected an array, not None");
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers = arguments.buffers(input, output);
  blocks.expect_inside(buffers.output);
  const bool is_in_place = buffers.input.is_empty();
  if (!is_in_place) expect_count(kCall, "input", buffers.input.count(), blocks.count_of(rank));
  const void* const from = is_in_place ? buffers.output.at(blocks.begin_of(rank)) : buffers.input.data();
  void* const to = buffers.output.data();
  const Dtype dtype = buffers.output.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, kCall, std::move(buffers), output, [&](const CommGroup& g) {
    return g.iallgatherv(from, to, blocks.counts, blocks.displacements, dtype, options);
  });
}

template <class Finish>
auto reduce_scatterv(const SharedGroup& group, py::handle input, py::handle output, py::handle counts,
                     py::handle op, py::handle algorithm, py::handle stream) {
  constexpr const char* kCall = "reduce_scatterv";
  const int rank = group->group().rank();
  const Blocks blocks(kCall, "input", counts, Py_None, group->group().size());
  const bool is_in_place = output.is_none();
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers;
  buffers.input = arguments.array(input, "input", is_in_place ? Use::written : Use::read);
  if (!is_in_place) buffers.output = arguments.buffers(input, output).output;
  blocks.expect_inside(buffers.input);
  if (!is_in_place) expect_count(kCall, "output", buffers.output.count(), blocks.count_of(rank));
  const void* const from = buffers.input.data();
  void* const to = is_in_place ? buffers.input.at(blocks.begin_of(rank)) : buffers.output.data();
  const Dtype dtype = buffers.input.dtype();
  const Reduction reduction = reduction_of(op, kCall, buffers, input);
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, kCall, std::move(buffers), is_in_place ? input : output,
                        [&](const CommGroup& g) {
                          return g.ireduce_scatterv(from, to, blocks.counts, dtype, reduction, options);
                        });
}

template <class Finish>
auto alltoallv(const SharedGroup& group, py::handle input, py::handle input_counts, py::handle output,
               py::handle output_counts, py::handle input_displacements, py::handle output_displacements,
               py::handle algorithm, py::handle stream) {
  constexpr const char* kCall = "alltoallv";
  const int size = group->group().size();
  const Blocks sent(kCall, "input", input_counts, input_displacements, size);
  const Blocks received(kCall, "output", output_counts, output_displacements, size);
  if (input.is_none() || output.is_none()) {
    throw py::type_error("alltoallv: input and output: expected arrays, not None");
  }
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers = arguments.buffers(input, output);
  sent.expect_inside(buffers.input);
  received.expect_inside(buffers.output);
  const void* const from = buffers.input.data();
  void* const to = buffers.output.data();
  const Dtype dtype = buffers.input.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(group, kCall, std::move(buffers), output, [&](const CommGroup& g) {
    return g.ialltoallv(from, sent.counts, sent.displacements, to, received.counts, received.displacements,
                        dtype, options);
  });
}

template <class Finish>
auto gatherv(const SharedGroup& group, py::handle input, py::handle output, py::handle counts,
             py::handle displacements, int root, bool counts_at_root, py::handle algorithm,
             py::handle stream) {
  constexpr const char* kCall = "gatherv";
  const int rank = group->group().rank();
  const bool is_root = rank == root;
  const bool has_counts = is_root || !counts_at_root;
  const Blocks blocks = has_counts ? Blocks(kCall, "output", counts, displacements, group->group().size())
                                   : Blocks(kCall, "output");
  if (is_root ? output.is_none() : input.is_none()) {
    throw py::type_error(std::string("gatherv: ") + (is_root ? "output" : "input") +
                         ": expected an array, not None");
  }
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers = arguments.buffers(input, is_root ? output : py::handle(Py_None));
  if (is_root) blocks.expect_inside(buffers.output);
  const bool is_in_place = buffers.input.is_empty();
  if (!is_in_place && has_counts) expect_count(kCall, "input", buffers.input.count(), blocks.count_of(rank));
  const void* const from = is_in_place ? buffers.output.at(blocks.begin_of(rank)) : buffers.input.data();
  void* const to = buffers.output.data();
  const std::size_t own_count = is_in_place ? blocks.count_of(rank) : buffers.input.count();
  const Dtype dtype = is_in_place ? buffers.output.dtype() : buffers.input.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(
      group, kCall, std::move(buffers), is_root ? output : py::handle(Py_None), [&](const CommGroup& g) {
        if (counts_at_root)
          return g.igatherv(from, own_count, to, blocks.counts, blocks.displacements, dtype, root, options);
        return g.igatherv(from, to, blocks.counts, blocks.displacements, dtype, root, options);
      });
}

template <class Finish>
auto scatterv(const SharedGroup& group, py::handle input, py::handle output, py::handle counts,
              py::handle displacements, int root, bool counts_at_root, py::handle algorithm,
              py::handle stream) {
  constexpr const char* kCall = "scatterv";
  const int rank = group->group().rank();
  const bool is_root = rank == root;
  const bool has_counts = is_root || !counts_at_root;
  const Blocks blocks = has_counts ? Blocks(kCall, "input", counts, displacements, group->group().size())
                                   : Blocks(kCall, "input");
  if (is_root ? input.is_none() : output.is_none()) {
    throw py::type_error(std::string("scatterv: ") + (is_root ? "input" : "output") +
                         ": expected an array, not None");
  }
  CallArguments arguments(*group, kCall, stream);
  Buffers buffers = arguments.buffers(is_root ? input : py::handle(Py_None), output);
  if (is_root) blocks.expect_inside(buffers.input);
  const bool is_in_place = buffers.output.is_empty();
  if (!is_in_place && has_counts)
    expect_count(kCall, "output", buffers.output.count(), blocks.count_of(rank));
  const void* const from = buffers.input.data();
  void* const to = is_in_place ? buffers.input.at(blocks.begin_of(rank)) : buffers.output.data();
  const std::size_t own_count = is_in_place ? blocks.count_of(rank) : buffers.output.count();
  const Dtype dtype = is_root ? buffers.input.dtype() : buffers.output.dtype();
  const CallOptions options = arguments.options(algorithm, Finish::kWaits);
  return Finish::finish(
      group, kCall, std::move(buffers), is_in_place ? input : output, [&](const CommGroup& g) {
        if (counts_at_root)
          return g.iscatterv(from, blocks.counts, blocks.displacements, to, own_count, dtype, root, options);
        return g.iscatterv(from, to, blocks.counts, blocks.displacements, dtype, root, options);
      });
}

}  // namespace

void define_uneven_collectives(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) {
  Definer definer(module, group);
  const auto input = py::arg("input");
  const auto output = py::arg("output");
  const auto counts = py::arg("counts");
  const auto displacements = py::arg("displacements") = py::none();
  const auto op = py::arg("op") = "sum";
  const auto root = py::arg("root") = 0;
  const auto algorithm = py::arg("algorithm") = "";
  const auto stream = py::arg("stream") = py::none();
  const py::kw_only keywords;
  definer.define("allgatherv", &allgatherv<Blocking>, &allgatherv<Background>,
                 "As allgather(), with counts[r] elements from rank r, which start at displacements[r] of "
                 "output (without: one after the other). All ranks pass all counts.",
                 input, output, counts, displacements, keywords, algorithm, stream);
  definer.define("reduce_scatterv", &reduce_scatterv<Blocking>, &reduce_scatterv<Background>,
                 "As reduce_scatter(), with blocks of counts[r] elements.", input, output, counts, op,
                 keywords, algorithm, stream);
  definer.define("alltoallv", &alltoallv<Blocking>, &alltoallv<Background>,
                 "As alltoall(), with counts and displacements for both sides. A rank must expect the "
                 "count that the other sends to it. Never in place.",
                 input, py::arg("input_counts"), output, py::arg("output_counts"),
                 py::arg("input_displacements") = py::none(), py::arg("output_displacements") = py::none(),
                 keywords, algorithm, stream);
  const auto counts_at_root = py::arg("counts_at_root") = false;
  const auto root_counts = py::arg("counts") = py::none();
  definer.define(
      "gatherv", &gatherv<Blocking>, &gatherv<Background>,
      "As gather(), with counts[r] elements from rank r, which start at displacements[r] of output. All "
      "ranks pass all counts; with counts_at_root=True on all ranks, only the root does.",
      input, output, root_counts, displacements, root, keywords, counts_at_root, algorithm, stream);
  definer.define(
      "scatterv", &scatterv<Blocking>, &scatterv<Background>,
      "As scatter(), with counts[r] elements for rank r, which start at displacements[r] of input. All "
      "ranks pass all counts; with counts_at_root=True on all ranks, only the root does.",
      input, output, root_counts, displacements, root, keywords, counts_at_root, algorithm, stream);
}

}  // namespace tutti::python

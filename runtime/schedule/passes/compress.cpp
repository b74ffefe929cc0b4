// One walk over the steps that remembers where the value of each location is: in full, in the wire copy, or in both.
#include "runtime/schedule/passes/compress.hpp"

#include <fmt/format.h>

#include <vector>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/passes/slice_parts.hpp"

namespace tutti {
namespace {

using detail::for_runs;
using detail::location;
using detail::part;

constexpr std::uint32_t kNobody = ~0U;

enum class Form : std::uint8_t {
  full,  // the wire copy is out of date, or was never written
  wire,  // the location is out of date: its value is the rounded one
  both,
};

Slice wire(Slice slice) {
  slice.is_wire = true;
  return slice;
}

class Compressor {
 public:
  Compressor(const Schedule& s, const Hierarchy* domains)
      : from_(s),
        domains_(domains),
        form_(detail::location_count(s), Form::full),
        since_(form_.size(), 0),
        to_(s) {
    to_.has_wire_copies = true;
    to_.channels = s.channels + 1;
    to_.steps.clear();
    to_.sources.clear();
    to_.dependencies.clear();
  }

  Result<Schedule> run() {
    find_results();
    for (std::uint32_t i = 0; i < from_.steps.size(); ++i) {
      const Step& step = from_.steps[i];
      const bool crosses = domains_ == nullptr || detail::is_local(step.verb) ||
                           domains_->domain_of(step.peer) != domains_->domain_of(from_.rank);
      if (step.verb == Verb::send) {
        TUTTI_RETURN_IF_ERROR(send(step, crosses));
      } else if (step.verb == Verb::recv) {
        receive(step, crosses);
      } else {
        compute(step);
        if (!results_of_.empty()) round_results(step.dst, i);
      }
    }
    copy_results_out();
    infer_dependencies(to_);
    return std::move(to_);
  }

 private:
  // In an allreduce some ranks form the result, and others are sent it: they must hold the same bits.
  void find_results() {
    if (from_.collective != Collective::allreduce) return;
    results_of_.assign(form_.size(), kNobody);
    for (std::uint32_t i = 0; i < from_.steps.size(); ++i) {
      const Step& step = from_.steps[i];
      if (!detail::writes(step.verb) || step.dst.buffer != Buffer::output) continue;
      for (std::uint32_t k = 0; k < step.dst.count; ++k)
        results_of_[location(from_, step.dst, k)] = detail::is_local(step.verb) ? i : kNobody;
    }
  }
  void round_results(const Slice& dst, std::uint32_t step) {
    const auto is_result = [&](std::uint32_t k) { return results_of_[location(from_, dst, k)] == step; };
    for_runs(dst.count, is_result, [&](std::uint32_t first, std::uint32_t count) {
      if (is_result(first)) round(part(from_, dst, first, count), from_.steps[step].channel);
    });
  }

  Form& form(const Slice& slice, std::uint32_t k) { return form_[location(from_, slice, k)]; }

  void append(Step step, std::span<const Slice> sources) {
    step.fused_with = kNotFused;
    to_.append(step, sources, {});
  }
  void copy(const Slice& dst, const Slice& source, std::uint16_t channel) {
    Step step;
    step.verb = Verb::copy;
    step.channel = channel;
    step.dst = dst;
    append(step, {&source, 1});
  }

  void round(const Slice& slice, std::uint16_t channel) {
    copy(wire(slice), slice, channel);
    set_wire(slice);
  }
  // The value is in the wire copy alone from now on.
  void set_wire(const Slice& slice) {
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      form(slice, k) = Form::wire;
      since_[location(from_, slice, k)] = static_cast<std::uint32_t>(rounded_.size());
    }
    rounded_.push_back(slice);
  }

  bool may_write(const Slice& slice, std::uint32_t k) const {
    if (slice.buffer != Buffer::output) return slice.buffer == Buffer::scratch;
    // In place, the other blocks of a reduce_scatter are the caller's.
    return from_.collective != Collective::reduce_scatter ||
           result_window(from_).contains(from_.atom(slice, k));
  }

  Status send(const Step& step, bool crosses) {
    const Slice source = from_.sources_of(step)[0];
    const Form missing = crosses ? Form::full : Form::wire;
    Status status;
    for_runs(
        source.count, [&](std::uint32_t k) { return form(source, k) == missing; },
        [&](std::uint32_t first, std::uint32_t count) {
          if (form(source, first) != missing) return;
          const Slice run = part(from_, source, first, count);
          if (crosses) return round(run, step.channel);
          for (std::uint32_t k = 0; k < count; ++k) {
            if (!may_write(run, k))
              status =
                  unsupported("compress: a value that may not be written goes out both rounded and in full");
            form(run, k) = Form::both;
          }
          copy(run, wire(run), step.channel);
        });
    const Slice sent = crosses ? wire(source) : source;
    append(step, {&sent, 1});
    return status;
  }

  void receive(Step step, bool crosses) {
    const Slice dst = step.dst;
    if (crosses) step.dst = wire(dst);
    append(step, {});
    if (crosses) return set_wire(dst);
    for (std::uint32_t k = 0; k < dst.count; ++k) form(dst, k) = Form::full;
  }

  // Once for each run of atoms whose sources are in the same copies.
  void compute(const Step& step) {
    const auto sources = from_.sources_of(step);
    std::vector<Slice> taken;
    const auto copies = [&](std::uint32_t k) {
      std::vector<bool> is_wire;
      for (const Slice& source : sources) is_wire.push_back(form(source, k) == Form::wire);
      return is_wire;
    };
    for_runs(step.dst.count, copies, [&](std::uint32_t first, std::uint32_t count) {
      taken.clear();
      for (const Slice& source : sources) {
        taken.push_back(part(from_, source, first, count));
        taken.back().is_wire = form(source, first) == Form::wire;
      }
      Step same = step;
      same.dst = part(from_, step.dst, first, count);
      append(same, taken);
      for (std::uint32_t k = 0; k < count; ++k) form(same.dst, k) = Form::full;
    });
  }

  // In the order in which they have come to the wire copies.
  void copy_results_out() {
    const Window results = result_window(from_);
    const auto channel = static_cast<std::uint16_t>(from_.channels);
    for (std::uint32_t i = 0; i < rounded_.size(); ++i) {
      const Slice slice = rounded_[i];
      if (slice.buffer != Buffer::output) continue;
      const auto is_left = [&](std::uint32_t k) {
        return form(slice, k) == Form::wire && since_[location(from_, slice, k)] == i &&
               results.contains(from_.atom(slice, k));
      };
      for_runs(slice.count, is_left, [&](std::uint32_t first, std::uint32_t count) {
        if (!is_left(first)) return;
        const Slice run = part(from_, slice, first, count);
        copy(run, wire(run), channel);
      });
    }
  }

  const Schedule& from_;
  const Hierarchy* domains_;
  std::vector<Form> form_;                 // by location
  std::vector<std::uint32_t> since_;       // by location: the last entry of rounded_ that it belongs to
  std::vector<std::uint32_t> results_of_;  // by location: the step that computes a result into it, or kNobody
  std::vector<Slice> rounded_;             // slices that came to their wire copies, in order
  Schedule to_;
};

}  // namespace

Result<Schedule> compress(const Schedule& schedule, const Hierarchy* domains) {
  if (detail::is_lowered(schedule) || schedule.has_wire_copies)
    return unsupported("compress: the schedule is lowered, or compressed already");
  if (!is_compressible(schedule.collective))
    return unsupported(fmt::format("compress: {} adds nothing", to_string(schedule.collective)));
  return Compressor(schedule, domains).run();
}

}  // namespace tutti

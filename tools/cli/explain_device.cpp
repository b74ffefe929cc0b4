// The table of engines, and the same for programs.
#include "tools/cli/explain_device.hpp"

#include <fmt/format.h>

#include "tools/cli/arguments.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {
namespace {

double us(std::uint64_t ps) { return static_cast<double>(ps) / 1e6; }

// Assumptions that may not hold where the call runs.
std::string assumptions(const DeviceAsked& asked) {
  const DeviceSetting& setting = asked.setting;
  std::string text = "CUDA's driver and NCCL (the newest) on all ranks, which are processes";
  if (setting.layout.per_node > 1 && setting.gpus_per_node > 1)
    text += fmt::format("; GPUs of a node reach each other's memory by {}",
                        asked.link == GpuLink::nvlink ? "NVLink" : "PCIe");
  return text + (asked.link == GpuLink::pcie ? "; a call takes NVLink for granted, whatever there is" : "");
}

std::string decided_by(const DeviceExplanation& answer) {
  return answer.chosen.is_made() ? describe_source(answer.chosen) : "price";
}

void print_text(const DeviceAsked& asked, const DeviceExplanation& answer) {
  const Question& q = asked.question;
  const DeviceSetting& setting = asked.setting;
  fmt::print("{} of {} bytes on GPUs over {} ranks {}: {}{}\n", to_string(q.collective), q.bytes, q.size,
             to_string(q.reach), to_string(answer.engine),
             answer.algorithm.empty() || is_kernel(answer.engine) ? "" : ", there by " + answer.algorithm);
  fmt::print("  decided by {}{}\n", decided_by(answer), answer.rule.empty() ? "" : " (" + answer.rule + ")");
  fmt::print("  ranks      {} on each of {} nodes with {} GPUs\n", setting.layout.per_node,
             setting.layout.nodes, setting.gpus_per_node);
  fmt::print("  assumed    {}\n", assumptions(asked));
  fmt::print("  prices     in microseconds, by published figures of H100: nobody has measured them\n\n");
  fmt::print("{:>12} {:>10} {:>10}  {:<12} {}\n", "predicted", "latency", "bytes", "engine", "why not");
  for (const EngineCandidate& c : answer.candidates) {
    std::string times = fmt::format("{:>12} {:>10} {:>10}", "-", "", "");
    if (c.price) {
      times = fmt::format("{:>12.2f} {:>10.2f} {:>10.2f}", us(c.price->total_ps), us(c.price->latency_ps),
                          us(c.price->bytes_ps));
    }
    fmt::print("{}  {:<12} {}\n", times, to_string(c.kind),
               c.is_chosen ? "<- chosen" : (c.is_possible ? "" : "cannot: ") + c.reason);
  }
}

Json to_json(const DeviceAsked& asked, const DeviceExplanation& answer) {
  const Question& q = asked.question;
  const DeviceSetting& setting = asked.setting;
  Json candidates = Json::array();
  for (const EngineCandidate& c : answer.candidates) {
    Json entry = {
        {"engine", to_string(c.kind)}, {"carrier", to_string(c.kind)},  // deprecated name of "engine"
        {"possible", c.is_possible},   {"chosen", c.is_chosen},
        {"reason", c.reason},          {"predicted_us", nullptr}};
    if (c.price) {
      entry["predicted_us"] = us(c.price->total_ps);
      entry["latency_us"] = us(c.price->latency_ps);
      entry["bytes_us"] = us(c.price->bytes_ps);
    }
    candidates.push_back(std::move(entry));
  }
  const bool is_ruled = answer.chosen.is_made();
  return {{"collective", to_string(q.collective)},
          {"bytes", q.bytes},
          {"dtype", to_string(setting.dtype)},
          {"ranks", q.size},
          {"reach", to_string(q.reach)},
          {"nodes", setting.layout.nodes},
          {"device", "cuda"},
          {"gpus_per_node", setting.gpus_per_node},
          {"gpu_link", to_string(asked.link)},
          {"assumed", assumptions(asked)},
          {"prices_measured", false},
          {"engine", to_string(answer.engine)},
          {"carrier", to_string(answer.engine)},  // deprecated name of "engine"
          {"algorithm", answer.algorithm.empty() ? Json(nullptr) : Json(answer.algorithm)},
          {"source", is_ruled ? Json(answer.chosen.source) : Json("price")},
          {"item", answer.chosen.item},
          {"decided_by", decided_by(answer)},
          {"rule", answer.rule},
          {"candidates", candidates}};
}

}  // namespace

int explain_on_devices(const Selector& selector, const DeviceAsked& asked) {
  const auto answer = explain_device(selector, asked.question, asked.algorithm, asked.setting);
  if (!answer) return usage_error("explain", answer.status());
  if (asked.is_json) {
    fmt::print("{}\n", to_json(asked, *answer).dump(1));
  } else {
    print_text(asked, *answer);
  }
  return 0;
}

}  // namespace tutti::tool

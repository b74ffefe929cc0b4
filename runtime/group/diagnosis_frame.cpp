// Encoding and parsing of the messages about operations that do not end.
#include "runtime/group/diagnosis_frame.hpp"

#include "runtime/job/control_frame.hpp"

namespace tutti {
namespace {

enum class Kind : std::uint8_t { report = 1, question, answer, arrival, machine };

// A list with its length in front.
template <class T>
void put_list(ByteWriter& writer, const std::vector<T>& list) {
  writer.put(static_cast<std::uint32_t>(list.size()));
  writer.put(list);
}

template <class T>
bool get_list(ByteReader& reader, std::vector<T>& list) {
  std::uint32_t count = 0;
  if (!reader.get(count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!reader.get(list.emplace_back())) return false;
  }
  return true;
}

bool get_message(ByteReader& reader, MachineReport& report) {
  std::uint32_t count = 0;
  if (!reader.get(count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    RankReport& rank = report.ranks.emplace_back();
    if (!reader.get(rank.world_rank) || !get_list(reader, rank.calls)) return false;
  }
  return true;
}

void put_calls(ByteWriter& writer, const CallHistory& calls) {
  writer.put(static_cast<std::uint32_t>(calls.size()));
  for (const SubmittedCall& call : calls) {
    writer.put(call.sequence);
    writer.put(call.digest);
    writer.put(call.kind);
    writer.put(call.count);
  }
}

bool get_calls(ByteReader& reader, CallHistory& calls) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count > SubmittedCalls::kRemembered) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    SubmittedCall call;
    if (!reader.get(call.sequence) || !reader.get(call.digest) || !reader.get(call.kind) ||
        !reader.get(call.count))
      return false;
    if (call.sequence == 0 || (!calls.empty() && call.sequence != calls.back().sequence + 1)) return false;
    calls.push_back(call);
  }
  return true;
}

// As text, because a list of verdicts takes the rest of the bytes. Empty: no failure.
std::string encode_failure(const Status& failure) {
  return failure ? std::string() : encode(make_failure(0, -1, failure));
}

bool get_failure(ByteReader& reader, Status& failure) {
  std::string text;
  FailurePayload payload;
  if (!reader.get_text(text)) return false;
  if (text.empty()) return true;
  if (!decode(text, payload) || payload.group != 0 || payload.dead_rank != -1) return false;
  failure = payload.to_status();
  return true;
}

bool get_waiting(ByteReader& reader, std::vector<WaitingCall>& waiting) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count > kMaxWaitingCalls) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    WaitingCall& call = waiting.emplace_back();
    std::uint32_t ranks = 0;
    if (!reader.get(call.context) || !reader.get(ranks)) return false;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (!reader.get(call.world_ranks.emplace_back())) return false;
    }
    if (!reader.get(call.awaited_world_rank) || !reader.get(call.sequence) || !reader.get_text(call.text))
      return false;
  }
  return true;
}

bool get_message(ByteReader& reader, StallReport& report) {
  return reader.get(report.context) && get_calls(reader, report.calls) && reader.get(report.awaited) &&
         reader.get(report.uncalled.context) && reader.get(report.uncalled.sequence);
}

bool get_message(ByteReader& reader, StateQuestion& question) { return reader.get(question); }
bool get_message(ByteReader& reader, MemberArrival& arrival) { return reader.get(arrival); }

bool get_message(ByteReader& reader, StateAnswer& answer) {
  RankState& state = answer.state;
  return reader.get(answer.inquiry) && reader.get(state.has_group) && get_calls(reader, state.calls) &&
         get_failure(reader, state.failure) && reader.get(state.process) && state.process.is_valid() &&
         reader.get(state.recorded) && get_waiting(reader, state.waiting) && get_list(reader, state.reported);
}

struct Encoder {
  ByteWriter writer;

  void operator()(const StallReport& report) {
    writer.put(Kind::report);
    writer.put(report.context);
    put_calls(writer, report.calls);
    writer.put(report.awaited);
    writer.put(report.uncalled.context);
    writer.put(report.uncalled.sequence);
  }
  void operator()(const StateQuestion& question) {
    writer.put(Kind::question);
    writer.put(question);
  }
  void operator()(const StateAnswer& answer) {
    writer.put(Kind::answer);
    writer.put(answer.inquiry);
    writer.put(answer.state.has_group);
    put_calls(writer, answer.state.calls);
    writer.put_text(encode_failure(answer.state.failure));
    writer.put(answer.state.process);
    writer.put(answer.state.recorded);
    writer.put(static_cast<std::uint32_t>(answer.state.waiting.size()));
    for (const WaitingCall& call : answer.state.waiting) {
      writer.put(call.context);
      writer.put(static_cast<std::uint32_t>(call.world_ranks.size()));
      for (const int rank : call.world_ranks) writer.put(rank);
      writer.put(call.awaited_world_rank);
      writer.put(call.sequence);
      writer.put_text(call.text);
    }
    put_list(writer, answer.state.reported);
  }
  void operator()(const MemberArrival& arrival) {
    writer.put(Kind::arrival);
    writer.put(arrival);
  }
  void operator()(const MachineReport& report) {
    writer.put(Kind::machine);
    writer.put(static_cast<std::uint32_t>(report.ranks.size()));
    for (const RankReport& rank : report.ranks) {
      writer.put(rank.world_rank);
      put_list(writer, rank.calls);
    }
  }
};

}  // namespace

std::string encode_diagnosis(const DiagnosisMessage& message) {
  Encoder encoder;
  std::visit(encoder, message);
  return encoder.writer.take();
}

std::optional<DiagnosisMessage> decode_diagnosis(std::string_view bytes) {
  ByteReader reader(bytes);
  std::uint8_t kind = 0;
  if (!reader.get(kind)) return std::nullopt;
  const auto parse = [&]<class Message>(Message message) {
    const bool is_right = get_message(reader, message) && reader.is_at_end();
    return is_right ? std::optional<DiagnosisMessage>(std::move(message)) : std::nullopt;
  };
  switch (static_cast<Kind>(kind)) {
    case Kind::report:
      return parse(StallReport());
    case Kind::question:
      return parse(StateQuestion());
    case Kind::answer:
      return parse(StateAnswer());
    case Kind::arrival:
      return parse(MemberArrival());
    case Kind::machine:
      return parse(MachineReport());
  }
  return std::nullopt;
}

}  // namespace tutti

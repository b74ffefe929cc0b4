// Meetings and mail of threads, and the serial loops behind them.
#include "tests/support/nccl_stand_in/clique.hpp"

#include <chrono>
#include <cstring>
#include <optional>

#include "runtime/kernels/reference.hpp"

namespace nccl_stand_in {
namespace {

using tutti::Dtype;
using tutti::Op;

std::optional<Dtype> dtype_of(ncclDataType_t type) {
  constexpr Dtype kDtypes[] = {Dtype::i8,  Dtype::u8,  Dtype::i32, Dtype::u32,  Dtype::i64,    Dtype::u64,
                               Dtype::f16, Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};
  const auto index = static_cast<std::size_t>(type);
  if (index >= std::size(kDtypes)) return std::nullopt;
  return kDtypes[index];
}

// dst <- the combination of every rank's elements [first, first + count).
void combine(const std::vector<const Request*>& requests, std::size_t first, std::size_t count, void* dst) {
  const Dtype dtype = *dtype_of(requests[0]->type);
  const std::size_t bytes = tutti::size_of(dtype);
  constexpr Op kOps[] = {Op::sum, Op::prod, Op::max, Op::min, Op::avg};
  const auto built_in = static_cast<std::size_t>(requests[0]->reduction.op);
  const Op op = built_in < std::size(kOps) ? kOps[built_in] : Op::sum;
  std::vector<std::vector<std::byte>> scaled;
  std::vector<const void*> sources;
  for (const Request* request : requests) {
    const void* source = static_cast<const std::byte*>(request->input) + first * bytes;
    if (request->reduction.is_scaled) {
      tutti::ReduceOp premul;
      premul.op = Op::premul_sum;
      premul.scalar = request->reduction.scalar;
      premul.integer_scalar = request->reduction.integer_scalar;
      premul.is_integer_scalar = tutti::class_of(dtype) == tutti::DtypeClass::integer;
      scaled.emplace_back(count * bytes);
      tutti::scale_reference(premul, static_cast<int>(requests.size()), dtype, scaled.back().data(), source,
                             count);
      source = scaled.back().data();
    }
    sources.push_back(source);
  }
  // Not in the output: it may be a source of others.
  std::vector<std::byte> result(count * bytes);
  tutti::reduce_reference(op == Op::avg ? Op::sum : op, dtype, result.data(), sources, count);
  if (op == Op::avg) {
    tutti::scale_reference(Op::avg, static_cast<int>(requests.size()), dtype, result.data(), result.data(),
                           count);
  }
  if (count > 0) std::memcpy(dst, result.data(), result.size());
}

void move(void* dst, const void* src, std::size_t bytes) {
  if (bytes > 0 && dst != src) std::memmove(dst, src, bytes);
}
const std::byte* in(const Request* request, std::size_t offset) {
  return static_cast<const std::byte*>(request->input) + offset;
}
std::byte* out(const Request* request, std::size_t offset) {
  return static_cast<std::byte*>(request->output) + offset;
}

bool agree(const Request& a, const Request& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.root == b.root &&
         a.reduction.is_scaled == b.reduction.is_scaled &&
         (a.reduction.is_scaled || a.reduction.op == b.reduction.op);
}

void reduce_all(const std::vector<const Request*>& requests) {
  const std::size_t size = requests.size(), count = requests[0]->count;
  const std::size_t block_bytes = count * tutti::size_of(*dtype_of(requests[0]->type));
  const auto root = static_cast<std::size_t>(requests[0]->root);
  if (requests[0]->kind == Kind::reduce_scatter) {
    // Results before any output: in place, outputs lie in inputs.
    std::vector<std::vector<std::byte>> results(size, std::vector<std::byte>(block_bytes));
    for (std::size_t r = 0; r < size; ++r) combine(requests, r * count, count, results[r].data());
    for (std::size_t r = 0; r < size; ++r) move(requests[r]->output, results[r].data(), block_bytes);
    return;
  }
  std::vector<std::byte> result(block_bytes);
  combine(requests, 0, count, result.data());
  for (std::size_t r = 0; r < size; ++r) {
    if (requests[0]->kind == Kind::allreduce || r == root)
      move(requests[r]->output, result.data(), block_bytes);
  }
}

}  // namespace

bool carry_out(const std::vector<const Request*>& requests) {
  const Request& first = *requests[0];
  for (const Request* request : requests) {
    if (!agree(first, *request)) return false;
  }
  if (!dtype_of(first.type)) return false;
  const std::size_t size = requests.size(), bytes = first.count * tutti::size_of(*dtype_of(first.type));
  const auto root = static_cast<std::size_t>(first.root);
  switch (first.kind) {
    case Kind::allreduce:
    case Kind::reduce:
    case Kind::reduce_scatter:
      reduce_all(requests);
      return true;
    case Kind::broadcast:
      for (const Request* to : requests) move(to->output, requests[root]->input, bytes);
      return true;
    case Kind::allgather:
      for (const Request* to : requests)
        for (std::size_t r = 0; r < size; ++r) move(out(to, r * bytes), requests[r]->input, bytes);
      return true;
    case Kind::gather:
      for (std::size_t r = 0; r < size; ++r) move(out(requests[root], r * bytes), requests[r]->input, bytes);
      return true;
    case Kind::scatter:
      for (std::size_t r = 0; r < size; ++r) move(requests[r]->output, in(requests[root], r * bytes), bytes);
      return true;
    case Kind::alltoall:
      for (std::size_t to = 0; to < size; ++to) {
        // As NCCL has it, not in place.
        if (requests[to]->input == requests[to]->output && bytes > 0) return false;
        for (std::size_t from = 0; from < size; ++from)
          move(out(requests[to], from * bytes), in(requests[from], to * bytes), bytes);
      }
      return true;
    case Kind::send:
    case Kind::receive:
      break;
  }
  return false;
}

void Clique::join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  devices_[static_cast<std::size_t>(rank)] = device;
}

bool Clique::is_complete() {
  const std::lock_guard lock(mutex_);
  for (const int device : devices_) {
    if (device < 0) return false;
  }
  return true;
}

bool Clique::has_duplicates() {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (devices_[i] >= 0 && devices_[i] == devices_[j]) return true;
    }
  }
  return false;
}

void Clique::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

template <class Condition>
bool Clique::wait(std::unique_lock<std::mutex>& lock, const Aborted& aborted, Condition condition) {
  changed_.wait(lock, [&] { return condition() || aborted.load(); });
  return condition();
}

bool Clique::meet(int rank, const Request& request, const Aborted& aborted) {
  std::unique_lock lock(mutex_);
  const std::uint64_t turn = turns_[rank]++;
  Meeting& meeting = meetings_[turn];
  meeting.requests.resize(devices_.size());
  meeting.requests[static_cast<std::size_t>(rank)] = &request;
  if (++meeting.arrived == size() && !meeting.is_deserted) {
    meeting.is_done = carry_out(meeting.requests);
    changed_.notify_all();
  }
  const bool is_done = wait(lock, aborted, [&] { return meeting.is_done; });
  if (!is_done) meeting.is_deserted = true;
  if (is_done && ++meeting.left == size()) meetings_.erase(turn);
  return is_done;
}

void Clique::take_back(int rank, const std::vector<std::shared_ptr<Message>>& sent) {
  for (const auto& message : sent) std::erase(mail_[{rank, message->send->root}], message);
}

bool Clique::exchange(int rank, const std::vector<const Request*>& messages, const Aborted& aborted) {
  std::unique_lock lock(mutex_);
  std::vector<std::shared_ptr<Message>> sent;
  for (const Request* request : messages) {
    if (request->kind != Kind::send) continue;
    sent.push_back(std::make_shared<Message>(Message{request}));
    mail_[{rank, request->root}].push_back(sent.back());
  }
  changed_.notify_all();
  bool is_good = true;
  for (const Request* request : messages) {
    if (request->kind != Kind::receive || !is_good) continue;
    auto& box = mail_[{request->root, rank}];
    is_good = wait(lock, aborted, [&] { return !box.empty(); });
    if (!is_good) break;
    const auto message = box.front();
    box.pop_front();
    is_good = message->send->count == request->count && message->send->type == request->type;
    if (!is_good) break;
    move(request->output, message->send->input,
         request->count * tutti::size_of(dtype_of(request->type).value_or(Dtype::u8)));
    message->is_taken = true;
    changed_.notify_all();
  }
  for (const auto& message : sent)
    is_good = is_good && wait(lock, aborted, [&] { return message->is_taken; });
  if (!is_good) take_back(rank, sent);
  return is_good;
}

bool Clique::run(int rank, const std::vector<Request>& requests, const Aborted& aborted) {
  std::vector<const Request*> messages;
  for (const Request& request : requests) {
    if (request.kind == Kind::send || request.kind == Kind::receive) {
      messages.push_back(&request);
    } else if (!meet(rank, request, aborted)) {
      return false;
    }
  }
  return messages.empty() || exchange(rank, messages, aborted);
}

}  // namespace nccl_stand_in

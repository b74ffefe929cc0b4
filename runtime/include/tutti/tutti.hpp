// tutti: collective communication between the ranks of a job. The C++ interface; everything a program needs
// is in this header.
//
//   tutti::CommGroup world = tutti::init();                    // started by tutti run, torchrun, or alone
//   std::vector<float> gradient = ...;
//   world.allreduce(std::span(gradient), tutti::Op::avg);      // in place, blocking
//   tutti::Work work = world.iallreduce(std::span(gradient));  // the same, in the background
//   work.wait();
//
// Errors: every function may throw tutti::Error. Once a group has failed (a rank died, a deadline passed,
// ranks made different calls) every pending and later operation of it throws the same cause; only destroying
// it is then useful. Threads: a group is used by one thread at a time (two at once is an error that is
// reported); give each thread its own group by split(). Different groups may be used by different threads.
// Work may be waited for by any one thread. Buffers: `count` is in elements and may exceed 2^31. Buffers
// belong to the operation until it is complete. Input and output may be the same memory only as each function
// says; other overlap is an error. Counts, dtype, op and root must be equal on all ranks unless a function
// says otherwise; different calls are detected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/types.hpp"

namespace tutti {

// Why an operation failed: the code to act on, the rank it is about (-1: none) and a message for people.
class Error : public std::runtime_error {
 public:
  Error(StatusCode code, int peer, const std::string& message)
      : std::runtime_error(message), code_(code), peer_(peer) {}
  StatusCode code() const { return code_; }
  int peer() const { return peer_; }

 private:
  StatusCode code_;
  int peer_;
};

// A user-defined operation: dst[i] = a[i] op b[i] for i < count, elements of the call's dtype. dst may be a
// or b. Must not throw and must be associative; a non-commutative one is applied in rank order. Ranks define
// their ops in the same order. The function must outlive every operation that uses it.
using UserFunction = void (*)(void* context, void* dst, const void* a, const void* b,
                              std::size_t count) noexcept;

namespace detail {
// A counted reference to an operation under way; small, and copied without allocation.
class WorkHandle {
 public:
  WorkHandle() = default;
  explicit WorkHandle(void* state);
  WorkHandle(const WorkHandle& other);
  WorkHandle(WorkHandle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  WorkHandle& operator=(WorkHandle other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~WorkHandle();
  void* get() const { return state_; }

 private:
  void* state_ = nullptr;
};
}  // namespace detail

// What a reduction does with two elements. Converts from Op.
class Reduction {
 public:
  Reduction(Op op = Op::sum) : op_(op) {}      // NOLINT(google-explicit-constructor)
  static Reduction premul_sum(double factor);  // each rank's input times its own factor, then added
  static Reduction premul_sum_integer(std::int64_t factor);  // the same for integer dtypes
  static Reduction user(UserFunction function, void* context, bool is_commutative);

  Op op() const { return op_; }

 private:
  friend struct ReductionAccess;  // for the implementation
  Op op_ = Op::sum;
  bool has_integer_factor_ = false;
  bool is_commutative_ = true;
  double factor_ = 1;
  std::int64_t integer_factor_ = 1;
  UserFunction function_ = nullptr;
  void* context_ = nullptr;
};

// How one call is carried out.
struct CallOptions {
  std::string_view
      algorithm;  // an item of the rule grammar ("ring", "bruck(radix=4)"); it is used or the call fails
};

// A submitted operation. Copies refer to the same one; dropping it neither waits nor cancels. An empty one is
// complete.
class Work {
 public:
  Work() = default;
  // Moves things on; true once complete, also by failure (wait() then throws it).
  bool test() const;
  // Blocks until complete. Throws the operation's error; timeout after the group's deadline, and the group
  // has then failed.
  void wait() const;
  // True if complete within the time given; throws the operation's error. The operation goes on if not.
  bool wait_for(std::chrono::milliseconds at_most) const;

  struct Access;  // for the implementation

 private:
  friend struct Access;
  std::shared_ptr<void> group_;
  detail::WorkHandle handle_;
};

namespace detail {
template <class T>
struct DtypeOf;  // no dtype of tutti; use the untyped functions with a Dtype
template <Dtype D>
using DtypeConstant = std::integral_constant<Dtype, D>;
template <>
struct DtypeOf<std::int8_t> : DtypeConstant<Dtype::i8> {};
template <>
struct DtypeOf<std::uint8_t> : DtypeConstant<Dtype::u8> {};
template <>
struct DtypeOf<std::byte> : DtypeConstant<Dtype::u8> {};
template <>
struct DtypeOf<std::int16_t> : DtypeConstant<Dtype::i16> {};
template <>
struct DtypeOf<std::uint16_t> : DtypeConstant<Dtype::u16> {};
template <>
struct DtypeOf<std::int32_t> : DtypeConstant<Dtype::i32> {};
template <>
struct DtypeOf<std::uint32_t> : DtypeConstant<Dtype::u32> {};
template <>
struct DtypeOf<std::int64_t> : DtypeConstant<Dtype::i64> {};
template <>
struct DtypeOf<std::uint64_t> : DtypeConstant<Dtype::u64> {};
template <>
struct DtypeOf<float> : DtypeConstant<Dtype::f32> {};
template <>
struct DtypeOf<double> : DtypeConstant<Dtype::f64> {};
template <>
struct DtypeOf<bool> : DtypeConstant<Dtype::boolean> {};
}  // namespace detail
template <class T>
inline constexpr Dtype dtype_of = detail::DtypeOf<std::remove_const_t<T>>::value;

// Ranks that communicate, in an order. Each i-function submits and returns; the function without i waits as
// well.
class CommGroup {
 public:
  CommGroup() = default;  // no group: every function but is_open() throws

  bool is_open() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this node, in rank order
  int local_size() const;

  // input: count elements; output: count elements, equal on all ranks; in place: output == input.
  Work iallreduce(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                  CallOptions = {}) const;
  // buffer: count elements, the root's on all ranks afterwards.
  Work ibroadcast(void* buffer, std::size_t count, Dtype, int root, CallOptions = {}) const;
  // output: count elements, at the root only (null elsewhere); in place at the root: output == input.
  Work ireduce(const void* input, void* output, std::size_t count, Dtype, Reduction, int root,
               CallOptions = {}) const;
  // input: count elements; output: size() * count, in rank order; in place: input == output + rank() * count.
  Work iallgather(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  // Block r of output has counts[r] elements and starts at displacements[r] (empty: one after the other). All
  // ranks pass all counts.
  Work iallgatherv(const void* input, void* output, std::span<const std::uint64_t> counts,
                   std::span<const std::uint64_t> displacements, Dtype, CallOptions = {}) const;
  // input: size() * count elements; output: count, block rank() of the sum; in place: output == input +
  // rank() * count.
  Work ireduce_scatter(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                       CallOptions = {}) const;
  Work ireduce_scatterv(const void* input, void* output, std::span<const std::uint64_t> counts, Dtype,
                        Reduction = Op::sum, CallOptions = {}) const;
  // input, output: size() * count elements; block d of input goes to rank d; in place: output == input.
  Work ialltoall(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  // Own counts and displacements for both sides; what a rank sends to another, that one must expect.
  Work ialltoallv(const void* input, std::span<const std::uint64_t> input_counts,
                  std::span<const std::uint64_t> input_displacements, void* output,
                  std::span<const std::uint64_t> output_counts,
                  std::span<const std::uint64_t> output_displacements, Dtype, CallOptions = {}) const;
  // input: count elements; output at the root: size() * count; in place at the root: input == output + rank()
  // * count.
  Work igather(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work igatherv(const void* input, void* output, std::span<const std::uint64_t> counts,
                std::span<const std::uint64_t> displacements, Dtype, int root, CallOptions = {}) const;
  // input at the root: size() * count elements; output: count; in place at the root: output == input + rank()
  // * count.
  Work iscatter(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work iscatterv(const void* input, void* output, std::span<const std::uint64_t> counts,
                 std::span<const std::uint64_t> displacements, Dtype, int root, CallOptions = {}) const;
  Work ibarrier(CallOptions = {}) const;
  // output: count elements, the combination of ranks 0..rank() in rank order; iexscan: of ranks 0..rank()-1
  // (rank 0: untouched).
  Work iscan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
             CallOptions = {}) const;
  Work iexscan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
               CallOptions = {}) const;
  // Messages to one peer match its receives in order. The counts must be equal.
  Work isend(const void* buffer, std::size_t count, Dtype, int peer) const;
  Work irecv(void* buffer, std::size_t count, Dtype, int peer) const;

  void allreduce(const void* input, void* output, std::size_t count, Dtype d, Reduction op = Op::sum,
                 CallOptions o = {}) const {
    iallreduce(input, output, count, d, op, o).wait();
  }
  void broadcast(void* buffer, std::size_t count, Dtype d, int root, CallOptions o = {}) const {
    ibroadcast(buffer, count, d, root, o).wait();
  }
  void reduce(const void* in, void* out, std::size_t count, Dtype d, Reduction op, int root,
              CallOptions o = {}) const {
    ireduce(in, out, count, d, op, root, o).wait();
  }
  void allgather(const void* in, void* out, std::size_t count, Dtype d, CallOptions o = {}) const {
    iallgather(in, out, count, d, o).wait();
  }
  void reduce_scatter(const void* in, void* out, std::size_t count, Dtype d, Reduction op = Op::sum,
                      CallOptions o = {}) const {
    ireduce_scatter(in, out, count, d, op, o).wait();
  }
  void alltoall(const void* in, void* out, std::size_t count, Dtype d, CallOptions o = {}) const {
    ialltoall(in, out, count, d, o).wait();
  }
  void gather(const void* in, void* out, std::size_t count, Dtype d, int root, CallOptions o = {}) const {
    igather(in, out, count, d, root, o).wait();
  }
  void scatter(const void* in, void* out, std::size_t count, Dtype d, int root, CallOptions o = {}) const {
    iscatter(in, out, count, d, root, o).wait();
  }
  void barrier(CallOptions o = {}) const { ibarrier(o).wait(); }
  void scan(const void* in, void* out, std::size_t count, Dtype d, Reduction op = Op::sum,
            CallOptions o = {}) const {
    iscan(in, out, count, d, op, o).wait();
  }
  void exscan(const void* in, void* out, std::size_t count, Dtype d, Reduction op = Op::sum,
              CallOptions o = {}) const {
    iexscan(in, out, count, d, op, o).wait();
  }
  void send(const void* buffer, std::size_t count, Dtype d, int peer) const {
    isend(buffer, count, d, peer).wait();
  }
  void recv(void* buffer, std::size_t count, Dtype d, int peer) const {
    irecv(buffer, count, d, peer).wait();
  }

  // Typed forms. In place where only one span is given.
  template <class T>
  void allreduce(std::span<T> buffer, Reduction op = Op::sum, CallOptions o = {}) const {
    allreduce(buffer.data(), buffer.data(), buffer.size(), dtype_of<T>, op, o);
  }
  template <class T>
  Work iallreduce(std::span<T> buffer, Reduction op = Op::sum, CallOptions o = {}) const {
    return iallreduce(buffer.data(), buffer.data(), buffer.size(), dtype_of<T>, op, o);
  }
  template <class T>
  void broadcast(std::span<T> buffer, int root, CallOptions o = {}) const {
    broadcast(buffer.data(), buffer.size(), dtype_of<T>, root, o);
  }
  template <class T>
  void send(std::span<const T> buffer, int peer) const {
    send(buffer.data(), buffer.size(), dtype_of<T>, peer);
  }
  template <class T>
  void recv(std::span<T> buffer, int peer) const {
    recv(buffer.data(), buffer.size(), dtype_of<T>, peer);
  }

  // The members with the same colour, ordered by (key, rank). A negative colour: no group for this rank
  // (closed). Collective.
  CommGroup split(int colour, int key = 0) const;
  // The members on this rank's node, in rank order. No communication.
  CommGroup split_by_node() const;
  // The listed ranks of this group, in that order; called by them alone, with equal lists. No communication.
  CommGroup create(std::span<const int> ranks) const;

  // The algorithm that iallreduce and friends would use here, and why ("two_shot: default item 2").
  std::string explain_algorithm(Collective, std::size_t count, Dtype, Reduction = Op::sum) const;
  // Fails the group on all ranks; every pending and later operation throws this message.
  void abort(const std::string& why) const;

  struct Impl;  // for the implementation
  explicit CommGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// How a program swaps bytes by its own means (MPI, a framework's store): every rank contributes, all get all
// in rank order.
using AllgatherBytes = std::function<std::vector<std::string>(std::string_view mine)>;

struct InitOptions {
  // The launcher's variables are used unless one of these is given.
  std::string unique_id;     // from make_unique_id(), handed to all ranks; with rank and size
  AllgatherBytes allgather;  // an exchange of the program's; with rank and size
  std::function<void(const std::string& key, const std::string& value)>
      put;                                                 // or a store of the program's: put and a get that
  std::function<std::string(const std::string& key)> get;  // waits for the key; with rank, size and prefix
  std::string store_prefix = "tutti";
  int rank = -1;
  int size = -1;
  std::chrono::milliseconds timeout{0};  // deadline of every wait; 0: TUTTI_TIMEOUT
};

// Joins the job and returns the group of all its ranks. May be called again: each call makes a world of its
// own (with launcher variables: all ranks must call it equally often). A world ends when the last CommGroup
// and Work of it is destroyed.
CommGroup init(const InitOptions& options = {});
std::string make_unique_id();

// Memory that the other ranks of this node can map, so that collectives on it copy less. Any thread; 64-byte
// aligned, zeroed. `group` decides which transport's heap it comes from and must be open; free it before the
// world ends.
void* alloc(const CommGroup& group, std::size_t bytes);
void free(const CommGroup& group, void* memory);

std::string_view version();

}  // namespace tutti

// Data types, operations, status codes, handles and options of the C interface. Included by tutti.h; includes
// nothing of tutti. C11 and C++.
#ifndef TUTTI_C_TYPES_H
#define TUTTI_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

// Enumerations are 32 bits wide in both languages. A number that this library does not know is an error that
// is reported.
#ifdef __cplusplus
#define TUTTI_AS_INT32 : int32_t
#else
#define TUTTI_AS_INT32
#endif

// Numbers are never changed; new ones are added at the end.

typedef enum TUTTI_AS_INT32 {
  TUTTI_I8 = 0,
  TUTTI_U8,
  TUTTI_I16,
  TUTTI_U16,
  TUTTI_I32,
  TUTTI_U32,
  TUTTI_I64,
  TUTTI_U64,
  TUTTI_F16,
  TUTTI_BF16,
  TUTTI_F32,
  TUTTI_F64,
  TUTTI_F8E4M3,
  TUTTI_F8E5M2,
  TUTTI_BOOLEAN,  // one byte, 0 or 1
  TUTTI_C64,      // complex numbers: of two floats, as float _Complex
  TUTTI_C128,     // of two doubles
  // A value and an index, for TUTTI_MINLOC and TUTTI_MAXLOC: struct { float value; int32_t index; } and so
  // on. Padding is part of the element, and has no meaning.
  TUTTI_F32_I32,
  TUTTI_F64_I32,
  TUTTI_I32_I32,
  TUTTI_I64_I32,
  TUTTI_F64_I64,
  TUTTI_I64_I64,
  TUTTI_OPAQUE,  // of TUTTI_USER only: elements of any size, which the call's options hold
} tutti_dtype_t;

#define TUTTI_ANY_SOURCE (-1)  // as the peer of a receive

typedef enum TUTTI_AS_INT32 {
  TUTTI_SUM = 0,
  TUTTI_PROD,
  TUTTI_MIN,
  TUTTI_MAX,
  TUTTI_AVG,
  TUTTI_BAND,  // bitwise
  TUTTI_BOR,
  TUTTI_BXOR,
  TUTTI_LAND,  // logical
  TUTTI_LOR,
  TUTTI_PREMUL_SUM,  // each rank's input times its own factor, which the call's options hold, then added
  TUTTI_USER,        // the function in the call's options
  TUTTI_LXOR,        // logical
  TUTTI_MINLOC,      // of pairs: the one with the least value; of equal values the one with the least index
  TUTTI_MAXLOC,      // the same with the greatest value, and the least index
} tutti_op_t;

typedef enum TUTTI_AS_INT32 {
  TUTTI_ALLREDUCE = 0,
  TUTTI_BROADCAST,
  TUTTI_REDUCE,
  TUTTI_ALLGATHER,
  TUTTI_REDUCE_SCATTER,
  TUTTI_ALLTOALL,
  TUTTI_GATHER,
  TUTTI_SCATTER,
  TUTTI_BARRIER,
  TUTTI_SCAN,
  TUTTI_EXSCAN,
  TUTTI_SEND_RECV,
} tutti_collective_t;

typedef enum TUTTI_AS_INT32 {
  TUTTI_OK = 0,
  TUTTI_INVALID_ARGUMENT,    // the caller's mistake: argument, variable or file; nothing was changed
  TUTTI_UNSUPPORTED,         // legal elsewhere, not for this build, transport, dtype or group
  TUTTI_MISMATCH,            // ranks of one group made different calls
  TUTTI_TIMEOUT,             // a deadline passed; the message names who is missing
  TUTTI_PEER_FAILED,         // a peer died or its connection broke
  TUTTI_REFUSED,             // a peer or process without the right secret, build or contract
  TUTTI_RESOURCE_EXHAUSTED,  // memory, descriptors or a limit; the message names the limit
  TUTTI_ABORTED,             // the group was aborted here or by another rank
  TUTTI_INTERNAL,            // a broken invariant of tutti itself
} tutti_status_t;

// Where the buffers of a call lie: detected by tutti, or stated by the program. A rank without buffers (with
// counts of 0, say) must state it in a call on GPUs.
typedef enum TUTTI_AS_INT32 { TUTTI_MEMORY_DETECT, TUTTI_MEMORY_HOST, TUTTI_MEMORY_DEVICE } tutti_memory_t;

// Handles. NULL is no group, and an operation that is complete.
typedef struct TuttiGroup* tutti_group_t;
typedef struct TuttiWork* tutti_work_t;
typedef struct TuttiBuffer* tutti_buffer_t;             // memory that is registered with a group
typedef struct TuttiQueue* tutti_queue_t;               // completions, for a thread that asks for them
typedef struct TuttiTensorQueue* tutti_tensor_queue_t;  // named tensors
typedef struct TuttiPlan* tutti_plan_t;                 // a call that is started again and again

// dst[i] = a[i] op b[i] for i < count, elements of the call's dtype. dst may be a or b. Must be associative
// and must return (no longjmp, no exception). Runs on any thread that waits for or tests an operation, and on
// progress threads.
typedef void (*tutti_user_function_t)(void* context, void* dst, const void* a, const void* b, size_t count);

// The outcome of an operation. Success: TUTTI_OK, "" and -1. Failure: its code, a message that is valid
// during the call, and the rank of the group that it is about (-1: none). Must return.
typedef void (*tutti_complete_function_t)(void* context, tutti_status_t status, const char* message,
                                          int peer);

// Called by a thread that waits for operations, every few microseconds at most. A program can make progress
// in another communication library here. Must not wait for operations of tutti; must return.
typedef void (*tutti_wait_function_t)(void* context);

// Gives the output of a named tensor, whose length follows from other ranks: called once all ranks are ready,
// by the queue's thread, with the rows that come from each rank (of TUTTI_REDUCE_SCATTER: with this rank's).
// Must return, without waiting. NULL for more than no bytes fails the operation with RESOURCE_EXHAUSTED on this
// rank; the others get theirs, unless it is on GPUs.
typedef void* (*tutti_allocate_function_t)(void* context, const uint64_t* rows, size_t row_count);

// -- options ------------------------------------------------------------------------------------------------
// Zero means "as usual" in every member but a factor. struct_bytes tells the library which members the
// program knows, so that their versions may differ. Start with the initialiser, or with zeros and
// struct_bytes = sizeof. A member that the library is too old for is an error unless it is zero.

typedef struct {
  size_t struct_bytes;
  const char* algorithm;   // an item of the rule grammar ("ring", "bruck(radix=4)"): used, or the call fails
  double factor;           // TUTTI_PREMUL_SUM on floating dtypes
  int64_t integer_factor;  // TUTTI_PREMUL_SUM on integer dtypes
  tutti_user_function_t function;  // TUTTI_USER; must outlive every operation that uses it
  void* function_context;
  int is_ordered;         // TUTTI_USER: does not commute; applied in rank order
  int will_wait;          // of submitted calls: the caller waits at once, so no progress thread is woken
  void* cuda_stream;      // of calls on GPUs' memory: the cudaStream_t they are ordered on (NULL: the default
                          // stream)
  tutti_memory_t memory;  // where the buffers lie
  uint32_t element_bytes;               // TUTTI_OPAQUE: of one element, 1 to 65536, equal on all ranks
  tutti_wait_function_t while_waiting;  // called while a thread waits in the call or for its work, which then
                                        // never sleeps for long; NULL costs nothing
  void* while_waiting_context;
  // TUTTI_ALLREDUCE, TUTTI_REDUCE and TUTTI_REDUCE_SCATTER, sums and averages of TUTTI_F32: the tutti_dtype_t of
  // messages between nodes, TUTTI_F32 or a narrower float; 0: as TUTTI_WIRE_DTYPE says. Equal on all ranks.
  int32_t wire_dtype;
  // TUTTI_ALLREDUCE in the memory of the host, with a wire dtype: `count` elements to which the losses of this rank's
  // roundings are added. All ranks give one, or none.
  float* residual;
} tutti_call_options_t;

#define TUTTI_CALL_OPTIONS                                                                                   \
  {                                                                                                          \
    sizeof(tutti_call_options_t), NULL, 0, 0, NULL, NULL, 0, 0, NULL, TUTTI_MEMORY_DETECT, 0, NULL, NULL, 0, \
        NULL                                                                                                 \
  }

// A call of a plan; buffers and counts as in the function of its collective. Start with the initialiser: an
// allreduce, TUTTI_SUM, of TUTTI_F32.
typedef struct {
  size_t struct_bytes;
  tutti_collective_t collective;  // all but TUTTI_SEND_RECV
  const void* input;
  void* output;  // TUTTI_BROADCAST: its buffer
  size_t count;
  tutti_dtype_t dtype;
  tutti_op_t op;  // of collectives that reduce
  int root;
  // One number per rank, as in the v-functions, instead of `count`; both sides of TUTTI_ALLTOALL have lists. Read
  // before the call returns.
  const uint64_t* counts;
  const uint64_t* displacements;
  const uint64_t* output_counts;
  const uint64_t* output_displacements;
} tutti_collective_call_t;

#define TUTTI_COLLECTIVE_CALL                                                                             \
  {                                                                                                       \
    sizeof(tutti_collective_call_t), TUTTI_ALLREDUCE, NULL, NULL, 0, TUTTI_F32, TUTTI_SUM, 0, NULL, NULL, \
        NULL, NULL                                                                                        \
  }

// A call on a named tensor. Start with the initialiser: an allreduce, TUTTI_SUM, of TUTTI_F32, with factors of 1.
typedef struct {
  size_t struct_bytes;
  tutti_collective_t
      collective;     // TUTTI_ALLREDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL or BARRIER
  const void* input;  // both belong to the operation until it is complete; in place: equal, for
  void* output;       // TUTTI_ALLREDUCE and TUTTI_BROADCAST
  tutti_dtype_t dtype;
  // Of the input, the slowest dimension first; read before the call returns. Equal on all ranks, but for the
  // first dimension of TUTTI_ALLGATHER and TUTTI_ALLTOALL. TUTTI_REDUCE_SCATTER splits the first dimension;
  // the first ranks get a row more where it does not divide.
  const uint64_t* shape;
  size_t dimension_count;
  tutti_op_t op;           // all but TUTTI_USER and TUTTI_PREMUL_SUM
  int root;                // of TUTTI_BROADCAST
  double prescale;         // each input is multiplied by it, in the dtype
  double postscale;        // and the result
  const uint64_t* splits;  // TUTTI_ALLTOALL: rows for each rank, one number per rank; NULL: equal parts
  tutti_allocate_function_t allocate;  // of the output; NULL: `output` is long enough
  void* allocate_context;
  int priority;           // the greatest first, with TUTTI_PRIORITY=direct
  const char* batch;      // tensors of one batch are communicated together; NULL and "": on its own
  uint32_t batch_size;    // how many tensors the batch has
  int will_wait;          // the caller waits at once: negotiate without a pause
  tutti_memory_t memory;  // where the buffers lie
  void* cuda_stream;      // of calls on GPUs' memory, as in tutti_call_options_t
  // Of sums and averages of TUTTI_F32: the tutti_dtype_t of messages between nodes, TUTTI_F32 or a narrower
  // float; 0: as TUTTI_WIRE_DTYPE says. Equal on all ranks.
  int32_t wire_dtype;
  // 1: of an allreduce, the loss of rounding to the wire dtype is added at the next step of this name; -1: it is not;
  // 0: as TUTTI_ERROR_FEEDBACK says. Equal on all ranks.
  int32_t error_feedback;
} tutti_tensor_call_t;

#define TUTTI_TENSOR_CALL                                                                                   \
  {                                                                                                         \
    sizeof(tutti_tensor_call_t), TUTTI_ALLREDUCE, NULL, NULL, TUTTI_F32, NULL, 0, TUTTI_SUM, 0, 1, 1, NULL, \
        NULL, NULL, 0, NULL, 0, 0, TUTTI_MEMORY_DETECT, NULL, 0, 0                                          \
  }

// An entry of tutti_queue_poll: the work's outcome, as tutti_wait would have returned it.
typedef struct {
  void* context;  // the program's own
  tutti_status_t status;
  int peer;             // of a failure, the rank of the group that it is about (-1: none)
  int source;           // of a receive, the rank that its message came from; -1 for all else
  const char* message;  // "" or why it failed; valid until the next poll of the queue
} tutti_completion_t;

// The program's own exchange or store. Return 0 for success; anything else fails tutti_init.
// all: bytes of every rank in rank order; mine: this rank's. Called by all ranks with equal bytes.
typedef int (*tutti_allgather_bytes_t)(void* context, const void* mine, void* all, size_t bytes);
typedef int (*tutti_put_bytes_t)(void* context, const char* key, const void* value, size_t bytes);
// Waits until the key exists, sets *bytes to the length of its value and copies as much of it as fits.
typedef int (*tutti_get_bytes_t)(void* context, const char* key, void* value, size_t capacity, size_t* bytes);

typedef struct {
  size_t struct_bytes;
  // The launcher's variables are used unless one of these three is given; rank and size go with each of them.
  const char* unique_id;              // the text of tutti_make_unique_id, handed to all ranks
  tutti_allgather_bytes_t allgather;  // an exchange of the program's
  tutti_put_bytes_t put;              // or its store: put and get
  tutti_get_bytes_t get;
  void* exchange_context;    // for allgather, put and get
  const char* store_prefix;  // one that no other world of that store uses; NULL: "tutti"
  int rank;
  int size;
  int64_t timeout_ms;  // deadline of every wait, joining included; 0: TUTTI_TIMEOUT
} tutti_init_options_t;

#define TUTTI_INIT_OPTIONS \
  { sizeof(tutti_init_options_t), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0 }

// Text that makes a job, with its terminating zero; fixed in size, to be handed on by any broadcast of bytes.
typedef struct {
  char text[512];
} tutti_unique_id_t;

#endif

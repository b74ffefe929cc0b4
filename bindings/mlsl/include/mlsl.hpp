// MLSL's C++ interface, as libmlsl.so of tutti offers it. Programs compiled against the original header of version 1.0
// link with the same library: class names, signatures and enumerators are equal. docs/mlsl.md describes the semantics.
//
// Errors: a mistake is written to stderr, the job ends, and the process exits with status 1.
// Threads: one thread at a time calls. Waiting for different requests may happen on different threads.
#pragma once

#include <cstddef>

#define MLSL_MAJOR_VERSION 1
#define MLSL_MINOR_VERSION 0
// A version is the major number times 65536 plus the minor one.
#define MLSL_VERSION(major, minor) (((major) << 16) | (minor))
#define MLSL_MAJOR(version) ((version) >> 16)
#define MLSL_MINOR(version) ((version)&0xFFFF)
#define MLSL_VERSION_GE(version, other) ((version) >= (other))
#define MLSL_VERSION_LT(version, other) ((version) < (other))

// Programs name these, in C++98 as well.
// NOLINTBEGIN(readability-identifier-naming, modernize-use-nullptr, modernize-use-using)
#pragma GCC visibility push(default)
namespace MLSL {

// A communication under way. Environment::Wait releases it, and so does Test once it reports completion.
typedef int CommReq;

enum DataType { DT_FLOAT = 0, DT_DOUBLE = 1, DT_BYTE = 2 };
enum PhaseType { PT_TRAIN = 0, PT_TEST = 1 };
enum GroupType { GT_DATA = 0, GT_MODEL = 1, GT_GLOBAL = 2 };
enum ReductionType { RT_SUM = 0, RT_MIN = 1, RT_MAX = 2 };
enum OpType {
  OT_CC = 0,  // convolution or fully connected: with model parallelism its output is a partial sum
  OT_BIAS = 1,
  OT_ACT = 2,
  OT_POOL = 3,
  OT_SPLIT = 4,
  OT_CONCAT = 5,
  OT_BCAST = 6,
  OT_REDUCE = 7,
  OT_DATA = 8,
  OT_EVAL = 9
};
enum CompressionType { CT_NONE = 0, CT_QUANTIZATION = 1 };

// A library with the functions that compress gradients:
//   int quant(void* src, void* dst, size_t count, void* diff, int src_dtype, size_t comp_ratio, int method)
//   int dequant(void* src, void* dst, size_t count)
//   int reduce_sum(const void* in, void* inout, size_t block_count)
struct QuantParams {
  char* lib_path;
  char* quant_buffer_func_name;
  char* dequant_buffer_func_name;
  char* reduce_sum_func_name;
  std::size_t block_size;     // bytes of a compressed block
  std::size_t elem_in_block;  // elements that one block holds
};

class Session;
class Operation;

// A rectangle of an activation, mini-batch by feature maps, and its place in the communication buffer.
class CommBlockInfo {
 public:
  std::size_t GetMbOffset();  // in this rank's part of the mini-batch
  std::size_t GetMbCount();
  std::size_t GetFmOffset();  // in this rank's feature maps
  std::size_t GetFmCount();
  std::size_t GetFmSize();  // elements of one feature map
  DataType GetDataType();
  std::size_t GetBufOffset();  // elements from the start of the buffer

 protected:
  CommBlockInfo() {}
  ~CommBlockInfo() {}

 private:
  CommBlockInfo(const CommBlockInfo&);
  CommBlockInfo& operator=(const CommBlockInfo&);
};

// An input or output of an operation.
class Activation {
 public:
  std::size_t GetGlobalFmCount();
  std::size_t GetGlobalFmOffset();
  std::size_t GetLocalFmCount();
  std::size_t GetPackBlockCount();
  std::size_t GetUnpackBlockCount();
  CommBlockInfo* GetPackBlock(std::size_t idx);
  CommBlockInfo* GetUnpackBlock(std::size_t idx);
  DataType GetDataType();
  std::size_t GetFmSize();
  void* GetCommBuf();            // null where nothing is communicated
  std::size_t GetCommBufSize();  // bytes that a buffer of the caller needs
  // Sends the packed blocks to the connected activation. The buffer is in use until that one's WaitComm() returns.
  void StartComm(void* buf);
  // Waits for the connected activation's communication. Returns the blocks to unpack; null where there are none.
  void* WaitComm();

 protected:
  Activation() {}
  ~Activation() {}

 private:
  Activation(const Activation&);
  Activation& operator=(const Activation&);
};

// Kernels that an operation learns. With distributed update each rank of a data group owns an equal part.
class ParameterSet {
 public:
  std::size_t GetGlobalKernelCount();
  std::size_t GetGlobalKernelOffset();
  std::size_t GetLocalKernelCount();  // padded with distributed update: owned count times data group size
  std::size_t GetOwnedKernelCount();
  std::size_t GetOwnedKernelOffset();  // in the local kernels
  DataType GetDataType();
  std::size_t GetKernelSize();
  bool IsDistributedUpdate();
  void StartGradientComm(void* buf);   // local kernels, added over the data group
  void StartIncrementComm(void* buf);  // local kernels, of which the owned ones are given to all
  void* WaitGradientComm();            // the owned kernels' sums; null where nothing is communicated
  void* TestGradientComm(bool* isCompleted);
  void* WaitIncrementComm();  // the local kernels; null where nothing is communicated

 protected:
  ParameterSet() {}
  ~ParameterSet() {}

 private:
  ParameterSet(const ParameterSet&);
  ParameterSet& operator=(const ParameterSet&);
};

// How a job is divided into data and model groups. Counts are in elements for each rank; roots are group ranks.
class Distribution {
 public:
  std::size_t GetProcessIdx(GroupType groupType);
  std::size_t GetProcessCount(GroupType groupType);
  CommReq* Bcast(void* buffer, std::size_t count, DataType dataType, std::size_t rootIdx,
                 GroupType groupType);
  CommReq* Reduce(void* sendBuffer, void* recvBuffer, std::size_t count, DataType dataType,
                  ReductionType redType, std::size_t rootIdx, GroupType groupType);
  CommReq* AllReduce(void* sendBuffer, void* recvBuffer, std::size_t count, DataType dataType,
                     ReductionType redType, GroupType groupType);
  CommReq* AlltoAll(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                    GroupType groupType);
  CommReq* AlltoAllv(void* sendBuffer, std::size_t* sendCounts, std::size_t* sendOffsets, void* recvBuffer,
                     std::size_t* recvCounts, std::size_t* recvOffsets, DataType dataType,
                     GroupType groupType);
  CommReq* Gather(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                  std::size_t rootIdx, GroupType groupType);
  CommReq* AllGather(void* sendBuffer, std::size_t sendCount, void* recvBuffer, DataType dataType,
                     GroupType groupType);
  CommReq* AllGatherv(void* sendBuffer, std::size_t sendCount, void* recvBuffer, std::size_t* recvCounts,
                      DataType dataType, GroupType groupType);
  CommReq* Scatter(void* sendBuffer, void* recvBuffer, std::size_t recvCount, DataType dataType,
                   std::size_t rootIdx, GroupType groupType);
  CommReq* ReduceScatter(void* sendBuffer, void* recvBuffer, std::size_t recvCount, DataType dataType,
                         ReductionType redType, GroupType groupType);
  void Barrier(GroupType groupType);

 protected:
  Distribution() {}
  ~Distribution() {}

 private:
  Distribution(const Distribution&);
  Distribution& operator=(const Distribution&);
};

// Describes an operation before it is added to a session.
class OperationRegInfo {
 public:
  void SetName(const char* name);
  std::size_t AddInput(std::size_t featureMapCount, std::size_t featureMapSize, DataType dataType);
  std::size_t AddOutput(std::size_t featureMapCount, std::size_t featureMapSize, DataType dataType);
  std::size_t AddParameterSet(std::size_t kernelCount, std::size_t kernelSize, DataType dataType,
                              bool distributedUpdate = false, CompressionType compressionType = CT_NONE);
  // Does nothing: the functions above have checked their arguments, and any distribution can divide them.
  void Validate(Distribution* dist = NULL);

 protected:
  OperationRegInfo() {}
  ~OperationRegInfo() {}

 private:
  OperationRegInfo(const OperationRegInfo&);
  OperationRegInfo& operator=(const OperationRegInfo&);
};

// A layer: activations, parameter sets, and the distribution that divides them.
class Operation {
 public:
  void SetDistribution(Distribution* dist);
  Distribution* GetDistribution();
  Session* GetSession();
  OpType GetOpType();
  void SetPrev(Operation* prev, std::size_t actIdx, std::size_t prevOpActIdx);
  void SetNext(Operation* next, std::size_t actIdx, std::size_t nextOpActIdx);
  const char* GetName();
  std::size_t GetGlobalMinibatchSize();
  std::size_t GetLocalMinibatchSize();
  std::size_t GetGlobalMinibatchOffset();
  std::size_t GetInputCount();
  Activation* GetInput(std::size_t idx);
  std::size_t GetOutputCount();
  Activation* GetOutput(std::size_t idx);
  bool HasParameterSets();
  std::size_t GetParameterSetCount();
  ParameterSet* GetParameterSet(std::size_t idx);

 protected:
  Operation() {}
  ~Operation() {}

 private:
  Operation(const Operation&);
  Operation& operator=(const Operation&);
};

// CPU cycles and bytes of the communication of a session's operations; enabled by MLSL_STATS=1.
class Statistics {
 public:
  void Start();
  void Stop();
  void Reset();
  bool IsStarted();
  bool IsEnabled();
  void Print();
  unsigned long long GetIsolationCommCycles(std::size_t opIdx);  // one step's, without computation beside it
  std::size_t GetCommSize(std::size_t opIdx);
  unsigned long long GetCommCycles(std::size_t opIdx);
  unsigned long long GetComputeCycles(std::size_t opIdx);
  unsigned long long GetTotalIsolationCommCycles();
  std::size_t GetTotalCommSize();
  unsigned long long GetTotalCommCycles();
  unsigned long long GetTotalComputeCycles();

 protected:
  Statistics() {}
  ~Statistics() {}

 private:
  Statistics(const Statistics&);
  Statistics& operator=(const Statistics&);
};

// The operations of a network.
class Session {
 public:
  void SetGlobalMinibatchSize(std::size_t globalMinibatchSize);  // once, before the operations
  std::size_t GetGlobalMinibatchSize();
  PhaseType GetPhaseType();
  OperationRegInfo* CreateOperationRegInfo(OpType opType);
  void DeleteOperationRegInfo(OperationRegInfo* info);
  std::size_t AddOperation(OperationRegInfo* info, Distribution* dist = NULL);
  void RemoveOperations();
  std::size_t GetOperationCount();
  Operation* GetOperation(std::size_t idx);
  void Commit();  // once, when all operations are connected
  Statistics* GetStats();

 protected:
  Session() {}
  ~Session() {}

 private:
  Session(const Session&);
  Session& operator=(const Session&);
};

// The process's part in the job.
class Environment {
 public:
  static Environment& GetEnv();
  static int GetVersion();
  // "color=N": processes with equal N become the global group, from now on. All processes call it.
  void Configure(const char* config = NULL);
  void Init(int* argc, char** argv[]);
  void Finalize();
  bool IsInitialized();
  std::size_t GetProcessIdx();
  std::size_t GetProcessCount();
  Session* CreateSession(PhaseType phaseType = PT_TRAIN);
  void DeleteSession(Session* session);
  Distribution* CreateDistribution(std::size_t dataPartitions, std::size_t modelPartitions);
  Distribution* CreateDistributionWithColors(int dataColor, int modelColor);
  void DeleteDistribution(Distribution* distribution);
  void Wait(CommReq* req);
  void Test(CommReq* req, bool* isCompleted);
  // Memory that the other processes of this node can map, so that collectives copy less.
  void* Alloc(std::size_t size, std::size_t alignment);
  void Free(void* ptr);
  // For parameter sets that have not started a compressed gradient yet.
  void SetQuantizationParams(QuantParams* params);
  QuantParams* GetQuantizationParams();

 protected:
  Environment() {}
  ~Environment() {}

 private:
  Environment(const Environment&);
  Environment& operator=(const Environment&);
};

}  // namespace MLSL
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming, modernize-use-nullptr, modernize-use-using)

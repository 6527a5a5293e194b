// The part of CUDA's runtime that trainer_core/ops/cuda uses, emulated on a CPU. Builds of the
// emulated backend find this header before the real one, and run each kernel's own source without a
// GPU. A block's threads are fibers of one thread; blocks run one after the other.
//
// The emulation detects wrong indices, wrong sums and wrong orders of work; missing barriers
// between warps (with MUSTER_EMULATED_REVERSED=1 the last thread and the last block run first, and
// one of the two orders reveals a missing barrier); and accesses of the host to device memory. Like
// a device, it refuses launches on another device's stream, launches with more shared memory than
// the kernel has requested, kernel arguments with addresses of host memory or of another device,
// copies in the wrong direction, and misaligned accesses (by a trap, see CMakeLists.txt). It cannot
// detect exceeded register limits, a device's lower precision of functions, and races within a
// warp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

// NOLINTBEGIN: names are CUDA's
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// A static variable works as shared memory, because one block runs at a time, in one thread of the
// process.
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
// uint2 and uint4 may alias, because kernels access memory of other types through them.
struct [[gnu::may_alias]] alignas(8) uint2 {
  unsigned x, y;
};
struct [[gnu::may_alias]] alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffU);

namespace emulated {
// Publishes a value of at most 24 bytes to the other lanes of the warp. Requires that all lanes of
// the warp call it. Returns the number of the exchange (never 0).
uint64_t share(const void* mine, size_t bytes);
// Returns the value of lane `lane` in the last exchange, valid until the calling lane calls share()
// again. Ends the process if that lane has left the kernel.
const void* shared_by(int lane);
// Returns the calling thread's lane.
int lane();
// Returns the lanes of the warp whose `flag` is true, as bits.
unsigned ballot(bool flag);
// Runs body for every thread of every block, each block with `shared_bytes` of dynamic shared
// memory.
void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);
}  // namespace emulated

template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int step) {
  emulated::share(&value, sizeof(T));
  std::memcpy(&value, emulated::shared_by(emulated::lane() ^ step), sizeof(T));
  return value;
}
inline unsigned __ballot_sync(unsigned /*mask*/, bool flag) { return emulated::ballot(flag); }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __float_as_uint(float x) {
  unsigned word;
  std::memcpy(&word, &x, sizeof(word));
  return word;
}
inline float __uint_as_float(unsigned word) {
  float x;
  std::memcpy(&x, &word, sizeof(x));
  return x;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned atomicMax(unsigned* at, unsigned value) {
  const unsigned before = *at;
  if (value > before) *at = value;
  return before;
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorHardwareStackError = 714,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorSystemNotReady = 802,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

#define CUDART_VERSION 13000
// The emulated devices' properties. Tests change them only while no other thread uses the runtime.
namespace emulated {
struct Properties {
  cudaError_t count_error = cudaSuccess;
  // Number of devices; all allocate from the same memory.
  int devices = 1;
  // Driver version; 0, which MUSTER_EMULATED_DRIVER=0 sets, too: there is no driver.
  int driver_version = CUDART_VERSION;
  int major = 9, minor = 0;
  cudaError_t code_error = cudaSuccess;  // the error of a lookup of a kernel's code
  // Bytes of the largest allocation that succeeds, as in fragmented memory.
  size_t largest_allocation = SIZE_MAX;
};
Properties& properties();
// Returns the number of allocations so far, of device memory and of page-locked host memory.
uint64_t allocations();
}  // namespace emulated
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
inline cudaError_t cudaDriverGetVersion(int* version) {
  return *version = emulated::properties().driver_version, cudaSuccess;
}
namespace emulated {
inline thread_local int current_device = 0;
}  // namespace emulated
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulated::properties().devices) return cudaErrorInvalidDevice;
  return emulated::current_device = device, cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  return *device = emulated::current_device, cudaSuccess;
}

// A stream executes no work until a thread waits for the stream, for one of its events or for the
// device, or has queried one of its events for some milliseconds. Thus a caller that forgets to
// wait finds the old memory contents. Copies on cudaStreamPerThread are complete when the call
// returns.
namespace emulated {
class Stream;
struct Event;
struct Graph;
struct Executable;
// A kernel, a copy, or a library call. `what`: its name and arguments as bytes, which identify it
// in a capture.
struct Work {
  std::function<void()> run;
  std::string what{};
};
template <class T>
void append_bytes(std::string& to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class T>
std::string bytes_of(T value) {
  std::string bytes;
  append_bytes(bytes, value);
  return bytes;
}
// Returns whether the stream records work instead of executing it.
bool captures(Stream* stream);
// Makes streams execute work during the call from now on, in host memory, as the CPU backend does.
void work_at_the_call();
cudaError_t enqueue(Stream* stream, Work work);
// Starts the work that is enqueued on the stream, although no thread waits for it.
void begin(Stream* stream);
}  // namespace emulated
cudaError_t cudaDeviceSynchronize();
using cudaStream_t = emulated::Stream*;
constexpr unsigned cudaStreamNonBlocking = 1;
inline const cudaStream_t cudaStreamPerThread = nullptr;  // a stream of the current device
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
using cudaEvent_t = emulated::Event*;
constexpr unsigned cudaEventBlockingSync = 1;
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to);

// Work that is captured from a stream becomes a graph (graphs.cc). The rules during a capture are a
// device's: the capturing thread must not make calls that cannot become part of the graph, no
// thread may wait for the stream or the device, and host memory in copies must be page-locked.
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
using cudaGraph_t = emulated::Graph*;
using cudaGraphExec_t = emulated::Executable*;
using cudaGraphNode_t = void*;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
// Stores only the number of nodes.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

inline cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return std::snprintf(id, static_cast<size_t>(length), "emulated %d", device), cudaSuccess;
}

// Allocations are rounded up to pages, as on a device.
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
constexpr unsigned cudaHostAllocMapped = 2;
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned);
cudaError_t cudaFreeHost(void* data);
constexpr unsigned cudaHostRegisterDefault = 0;
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned);
cudaError_t cudaHostUnregister(void* data);
cudaError_t cudaMemset(void* data, int value, size_t bytes);
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t);

struct cudaFuncAttributes {
  int numRegs;
};
template <class Function>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Function*) {
  return emulated::properties().code_error;
}

namespace emulated {
// Maximum shared memory of a block. Initially sm_90's value; a test may set another device's.
inline int shared_bytes_max = 227 << 10;
}  // namespace emulated
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = emulated::shared_bytes_max, cudaSuccess;
}
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
namespace emulated {
// Sets the maximum shared memory that launches of the kernel may request on the current device.
cudaError_t allow_shared_bytes(const void* kernel, int bytes);
// Returns the error that a launch with these arguments has on a device, or cudaSuccess.
cudaError_t check_launch(Stream* stream, const void* kernel, dim3 grid, size_t shared_bytes);
// Ends the process if a kernel's argument holds the address of memory that the stream's device
// cannot access.
void check_argument(Stream* stream, const std::string& bytes);
}  // namespace emulated
template <class Function>
cudaError_t cudaFuncSetAttribute(Function* kernel, cudaFuncAttribute, int value) {
  return emulated::allow_shared_bytes(reinterpret_cast<const void*>(kernel), value);
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  if (const cudaError_t error =
          emulated::check_launch(config->stream, reinterpret_cast<const void*>(kernel),
                                 config->gridDim, config->dynamicSmemBytes))
    return error;
  (emulated::check_argument(config->stream, emulated::bytes_of(arguments)), ...);
  emulated::Work work{
      [grid = config->gridDim, block = config->blockDim, shared = config->dynamicSmemBytes, kernel,
       arguments...] { emulated::run(grid, block, shared, [&] { kernel(arguments...); }); }};
  if (emulated::captures(config->stream)) {
    emulated::append_bytes(work.what, kernel);
    emulated::append_bytes(work.what, config->gridDim);
    emulated::append_bytes(work.what, config->blockDim);
    emulated::append_bytes(work.what, config->dynamicSmemBytes);
    (emulated::append_bytes(work.what, arguments), ...);
  }
  return emulated::enqueue(config->stream, std::move(work));
}
// NOLINTEND

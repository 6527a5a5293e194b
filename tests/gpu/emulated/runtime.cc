// The emulated device's memory, streams and events, its reported properties, and the calls that it
// refuses.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "graphs.h"
#include "locked_memory.h"
#include "nvtx3/nvToolsExt.h"
#include "stream.h"

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

namespace emulated {

DeviceMemory& memory() {
  // Never destroyed: objects that live as long as the process release their memory after
  // destructors of statics.
  static auto* const all = new DeviceMemory;
  return *all;
}

namespace {

struct Streams {
  std::mutex mutex;
  std::map<Stream*, std::shared_ptr<Stream>> all;
  bool at_the_call = false;
};
Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}
std::shared_ptr<Stream> find(Stream* stream) {
  const std::lock_guard lock(streams().mutex);
  return streams().all.at(stream);
}
std::vector<std::shared_ptr<Stream>> all_streams() {
  const std::lock_guard lock(streams().mutex);
  std::vector<std::shared_ptr<Stream>> all;
  for (const auto& [stream, owner] : streams().all) all.push_back(owner);
  return all;
}
void wait_for_all() {
  for (const auto& stream : all_streams()) stream->run_until(stream->enqueued());
}

bool is_devices(const void* data, size_t bytes) {
  return memory().device_of(data, bytes).has_value();
}
// Returns whether a copy in a graph may access the memory.
bool is_known(const void* data, size_t bytes) {
  return is_devices(data, bytes) || locked().hold(data, bytes);
}
// Returns whether the copy's ends lie where its kind states.
bool is_copy(cudaMemcpyKind kind, const void* to, const void* from, size_t bytes) {
  if (streams().at_the_call) return true;
  const bool to_device = is_devices(to, bytes), from_device = is_devices(from, bytes);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return from_device && !to_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// Returns the device of the stream, or the current device for the default stream.
int device_of(const Stream* stream) { return stream == nullptr ? current_device : stream->device; }

// Shared memory that kernels have requested beyond the default.
struct Allowed {
  std::mutex mutex;
  std::map<std::pair<int, const void*>, size_t> bytes;  // by device and kernel
};
Allowed& allowed() {
  static auto* const all = new Allowed;
  return *all;
}

// Returns whether a number may be an address at which the process has memory.
bool is_mapped(uintptr_t number) {
  constexpr uintptr_t kLow = uintptr_t{1} << 32, kHigh = uintptr_t{1} << 47, kPage = 4096;
  if (number < kLow || number >= kHigh) return false;
  return msync(reinterpret_cast<void*>(number / kPage * kPage), 1, MS_ASYNC) == 0;
}

}  // namespace

cudaError_t allow_shared_bytes(const void* kernel, int bytes) {
  if (bytes > shared_bytes_max) return cudaErrorInvalidValue;
  const std::lock_guard lock(allowed().mutex);
  allowed().bytes[{current_device, kernel}] = static_cast<size_t>(bytes);
  return cudaSuccess;
}

cudaError_t check_launch(Stream* stream, const void* kernel, dim3 grid, size_t shared_bytes) {
  if (device_of(stream) != current_device) return cudaErrorInvalidResourceHandle;
  constexpr unsigned kFirstMax = 0x7fffffffU, kOtherMax = 65'535;
  if (grid.x > kFirstMax || grid.y > kOtherMax || grid.z > kOtherMax)
    return cudaErrorInvalidConfiguration;
  constexpr size_t kUnasked = size_t{48} << 10;
  const std::lock_guard lock(allowed().mutex);
  const auto found = allowed().bytes.find({current_device, kernel});
  const size_t most = found == allowed().bytes.end() ? kUnasked : std::max(kUnasked, found->second);
  return shared_bytes <= most ? cudaSuccess : cudaErrorInvalidValue;
}

// Checks each word that is aligned like a pointer. Padding of structures is zero if the compiler
// can clear it; without that builtin the words cannot be checked.
void check_argument(Stream* stream, const std::string& bytes) {
#if __has_builtin(__builtin_clear_padding)
  if (streams().at_the_call) return;
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes.size(); at += sizeof(uintptr_t)) {
    uintptr_t number = 0;
    std::memcpy(&number, bytes.data() + at, sizeof(number));
    if (!is_mapped(number)) continue;
    const auto* const address = reinterpret_cast<const void*>(number);
    const auto device = memory().device_of(address, 0);
    if (device && *device != device_of(stream))
      fail("a kernel is given memory of another device than its stream's");
    if (!device && !locked().hold(address, 0))
      fail("a kernel is given memory of the host's that the device does not have");
  }
#else
  (void)stream, (void)bytes;
#endif
}

void work_at_the_call() { streams().at_the_call = true; }

cudaError_t enqueue(Stream* stream, Work work) {
  if (captures(stream)) return record(stream, std::move(work));
  ++graphs().enqueued;
  if (stream == nullptr || streams().at_the_call) return work.run(), cudaSuccess;
  return stream->enqueue(std::move(work.run)), cudaSuccess;
}

void do_later(Stream* stream, std::function<void()> work) {
  if (streams().at_the_call) return work();
  stream->enqueue(std::move(work));
}

void begin(Stream* stream) { stream->begin_until(stream->enqueued()); }

}  // namespace emulated

cudaError_t cudaDeviceSynchronize() {
  for (const auto& stream : emulated::all_streams())
    if (const auto capture = stream->capture())
      return capture->fail(cudaErrorStreamCaptureUnsupported);
  return emulated::wait_for_all(), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  auto made = std::make_shared<emulated::Stream>();
  *stream = made.get();
  const std::lock_guard lock(emulated::streams().mutex);
  emulated::streams().all.emplace(made.get(), std::move(made));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  // Ends the stream's thread after the lock is released.
  const auto last = emulated::find(stream);
  const std::lock_guard lock(emulated::streams().mutex);
  emulated::streams().all.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  if (emulated::captures(stream)) return stream->capture()->fail(cudaErrorStreamCaptureUnsupported);
  if (stream != nullptr) stream->run_until(stream->enqueued());
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(event->mutex);
  if (emulated::captures(stream))
    return event->capture == stream->capture()
               ? cudaSuccess
               : stream->capture()->fail(cudaErrorStreamCaptureIsolation);
  // Otherwise the stream would join the capture, and would have to rejoin its origin.
  if (event->capture != nullptr)
    return event->capture->fail(cudaErrorStreamCaptureUnjoined), cudaSuccess;
  if (event->stream == nullptr) return cudaSuccess;
  emulated::do_later(stream,
                     [other = event->stream, number = event->number] { other->run_until(number); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new emulated::Event, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(event->mutex);
  event->stream = emulated::find(stream);
  event->first_query.reset();
  event->capture = stream->capture();
  if (event->capture != nullptr) return cudaSuccess;
  event->at = std::make_shared<emulated::Time>();
  emulated::do_later(stream, [at = event->at] { *at = std::chrono::steady_clock::now(); });
  event->number = stream->enqueued();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  std::unique_lock lock(event->mutex);
  if (event->capture != nullptr) return event->capture->fail(cudaErrorCapturedEvent);
  const auto stream = event->stream;
  const uint64_t number = event->number;
  lock.unlock();
  if (stream != nullptr) stream->run_until(number);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) return event->capture->fail(cudaErrorCapturedEvent);
  if (event->stream == nullptr || event->stream->has_done(event->number)) return cudaSuccess;
  const auto now = std::chrono::steady_clock::now();
  if (!event->first_query) event->first_query = now;
  if (now - *event->first_query >= emulated::kQueryDelay) event->stream->begin_until(event->number);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (from->device != to->device || from->stream == nullptr || to->stream == nullptr)
    return cudaErrorInvalidResourceHandle;
  if (cudaEventQuery(from) != cudaSuccess || cudaEventQuery(to) != cudaSuccess)
    return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(*to->at - *from->at).count();
  return cudaSuccess;
}

namespace {

// CUDA's names and texts.
struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrorTexts[] = {
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};
const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText kOther = {cudaErrorUnknown, "emulated", "an error of the emulation"};
  const auto* const found = std::ranges::find(kErrorTexts, error, &ErrorText::error);
  return found == std::end(kErrorTexts) ? kOther : *found;
}

}  // namespace
const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
emulated::Properties& emulated::properties() {
  static Properties all = [] {
    Properties made;
    const char* const driver = std::getenv("MUSTER_EMULATED_DRIVER");
    if (driver == nullptr || std::strcmp(driver, "0") != 0) return made;
    made.driver_version = 0;
    made.count_error = cudaErrorInsufficientDriver;
    return made;
  }();
  return all;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t error = emulated::properties().count_error;
  *count = error == cudaSuccess ? emulated::properties().devices : 0;
  return error;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated GPU");
  properties->totalGlobalMem = emulated::kMemoryBytes;
  properties->major = emulated::properties().major;
  properties->minor = emulated::properties().minor;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = emulated::kMemoryBytes;
  *free = *total - std::min(*total, emulated::memory().bytes());
  return cudaSuccess;
}
extern "C" cudaError_t cudaProfilerStart() {
  return emulated::listener().record("profile on"), cudaSuccess;
}
extern "C" cudaError_t cudaProfilerStop() {
  return emulated::listener().record("profile off"), cudaSuccess;
}
namespace {
std::atomic<uint64_t> allocated = 0;
}  // namespace
uint64_t emulated::allocations() { return allocated; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  ++allocated;
  if (bytes > emulated::properties().largest_allocation ||
      bytes > emulated::kMemoryBytes - std::min(emulated::kMemoryBytes, emulated::memory().bytes()))
    return cudaErrorMemoryAllocation;
  *data = emulated::memory().add(bytes, emulated::current_device);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  emulated::wait_for_all();
  return emulated::memory().remove(data), cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  // Releases the pages: untouched pages cost nothing each time the memory is opened and closed, and
  // new memory is zeroed first.
  if (value == 0 && emulated::memory().zero_pages(data, bytes)) return cudaSuccess;
  const emulated::DeviceMemory::Open open(emulated::memory());
  return std::memset(data, value, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!emulated::is_copy(kind, to, from, bytes)) return cudaErrorInvalidValue;
  if (emulated::registered().cross(to, bytes) || emulated::registered().cross(from, bytes))
    return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDeviceToHost) emulated::listener().record("download");
  emulated::Work work{[=] {
    const emulated::DeviceMemory::Open open(emulated::memory());
    std::memmove(to, from, bytes);
  }};
  if (emulated::captures(stream)) {
    if (!emulated::is_known(to, bytes) || !emulated::is_known(from, bytes))
      return stream->capture()->fail(cudaErrorStreamCaptureUnsupported);
    work.what = "copy";
    emulated::append_bytes(work.what, to);
    emulated::append_bytes(work.what, from);
    emulated::append_bytes(work.what, bytes);
  }
  return emulated::enqueue(stream, std::move(work));
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  ++allocated;
  *data = std::malloc(bytes);
  if (*data == nullptr) return cudaErrorInvalidConfiguration;
  return emulated::locked().add(*data, bytes) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return emulated::registered().add(data, bytes) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostUnregister(void* data) {
  return emulated::registered().remove(data) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  (void)emulated::locked().remove(data);
  return std::free(data), cudaSuccess;
}

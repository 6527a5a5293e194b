// The emulated device's memory, streams and events, and what the runtime says of it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "nvtx3/nvToolsExt.h"

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

namespace emulated {

DeviceMemory& memory() {
  // Never ended: objects that live as long as the process free what they have after that.
  static auto* const all = new DeviceMemory;
  return *all;
}

// What it was told, in order; the first `done` of it is done. Who waits for it does it, one at a time; a thread of its own does it for who
// asks without waiting.
class Stream {
 public:
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void tell(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++told_;
  }
  uint64_t told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  bool has_done(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  // Others may have other work of it done meanwhile, which this one may wait for: so nothing is held while something is done.
  void run_until(uint64_t number) {
    std::unique_lock lock(mutex_);
    while (done_ < number) {
      if (runs_) {
        changed_.wait(lock);
        continue;
      }
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      runs_ = true;
      lock.unlock();
      work();
      lock.lock();
      runs_ = false;
      ++done_;
      changed_.notify_all();
    }
  }
  // Not by who calls.
  void begin_until(uint64_t number) {
    const std::lock_guard lock(mutex_);
    wanted_ = std::max(wanted_, number);
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (done_ >= wanted_) {
        changed_.wait(lock);
        continue;
      }
      const uint64_t number = wanted_;
      lock.unlock();
      run_until(number);
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t told_ = 0, done_ = 0, wanted_ = 0;
  bool runs_ = false, stopping_ = false;
  std::thread thread_;
};

// A device works by itself, though not at once: who only asks whether something is done is told so after a while.
constexpr auto kAskedFor = std::chrono::milliseconds(4);

using Time = std::chrono::steady_clock::time_point;
struct Event {
  std::mutex mutex;
  std::shared_ptr<Stream> stream;  // where it was recorded last
  uint64_t number = 0;
  std::optional<Time> asked;                            // first since then
  std::shared_ptr<Time> at = std::make_shared<Time>();  // when the stream came to it
};

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

}  // namespace

void work_at_the_call() { streams().at_the_call = true; }

void enqueue(Stream* stream, std::function<void()> work) {
  if (stream == nullptr || streams().at_the_call) return work();
  stream->tell(std::move(work));
}

void begin(Stream* stream) { stream->begin_until(stream->told()); }

}  // namespace emulated

cudaError_t cudaDeviceSynchronize() {
  std::vector<std::shared_ptr<emulated::Stream>> all;
  {
    const std::lock_guard lock(emulated::streams().mutex);
    for (const auto& [stream, owner] : emulated::streams().all) all.push_back(owner);
  }
  for (const auto& stream : all) stream->run_until(stream->told());
  return cudaSuccess;
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
  const auto last = emulated::find(stream);  // ends its thread behind the lock
  const std::lock_guard lock(emulated::streams().mutex);
  emulated::streams().all.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) stream->run_until(stream->told());
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(event->mutex);
  if (event->stream == nullptr) return cudaSuccess;
  emulated::enqueue(stream,
                    [other = event->stream, number = event->number] { other->run_until(number); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new emulated::Event, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(event->mutex);
  event->stream = emulated::find(stream);
  event->asked.reset();
  event->at = std::make_shared<emulated::Time>();
  emulated::enqueue(stream, [at = event->at] { *at = std::chrono::steady_clock::now(); });
  event->number = stream->told();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(event->mutex);
  const auto stream = event->stream;
  const uint64_t number = event->number;
  lock.unlock();
  if (stream != nullptr) stream->run_until(number);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  if (event->stream == nullptr || event->stream->has_done(event->number)) return cudaSuccess;
  const auto now = std::chrono::steady_clock::now();
  if (!event->asked) event->asked = now;
  if (now - *event->asked >= emulated::kAskedFor) event->stream->begin_until(event->number);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (cudaEventQuery(from) != cudaSuccess || cudaEventQuery(to) != cudaSuccess)
    return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(*to->at - *from->at).count();
  return cudaSuccess;
}

namespace {

// As CUDA has them.
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
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
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
  return emulated::listener().hear("profile on"), cudaSuccess;
}
extern "C" cudaError_t cudaProfilerStop() {
  return emulated::listener().hear("profile off"), cudaSuccess;
}
namespace {
std::atomic<uint64_t> allocated = 0;
}  // namespace
uint64_t emulated::allocations() { return allocated; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  ++allocated;
  if (bytes > emulated::properties().largest_allocation ||
      bytes > emulated::kMemoryBytes - std::min(emulated::kMemoryBytes, emulated::memory().bytes()))
    return cudaErrorMemoryAllocation;
  *data = emulated::memory().add(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  cudaDeviceSynchronize();
  return emulated::memory().remove(data), cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  // Pages that nobody has touched cost nothing each time the memory is opened and closed, and what is allocated is zeroed first.
  if (value == 0 && emulated::memory().forget(data, bytes)) return cudaSuccess;
  const emulated::DeviceMemory::Open open(emulated::memory());
  return std::memset(data, value, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost) emulated::listener().hear("download");
  emulated::enqueue(stream, [=] {
    const emulated::DeviceMemory::Open open(emulated::memory());
    std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ++allocated;
  *data = std::malloc(bytes);
  return *data == nullptr ? cudaErrorInvalidConfiguration : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) { return std::free(data), cudaSuccess; }

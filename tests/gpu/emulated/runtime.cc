// The emulated device's memory, streams and events, and what the runtime says of it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "nvtx3/nvToolsExt.h"

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

namespace emulated {

DeviceMemory& memory() {
  static DeviceMemory all;
  return all;
}

// What it was told, in order; the first `done` of it is done.
struct Stream {
  std::mutex mutex;
  std::deque<std::function<void()>> queue;
  uint64_t done = 0;

  uint64_t told() {
    const std::lock_guard lock(mutex);
    return done + queue.size();
  }
  void run_until(uint64_t number) {
    const std::lock_guard lock(mutex);
    for (; done < number; ++done) {
      queue.front()();
      queue.pop_front();
    }
  }
};
struct Event {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;
};

namespace {

struct Streams {
  std::mutex mutex;
  std::map<Stream*, std::shared_ptr<Stream>> all;
  bool at_the_call = false;
};
Streams& streams() {
  static Streams all;
  return all;
}
std::shared_ptr<Stream> find(Stream* stream) {
  const std::lock_guard lock(streams().mutex);
  return streams().all.at(stream);
}

}  // namespace

void work_at_the_call() { streams().at_the_call = true; }

void enqueue(Stream* stream, std::function<void()> work) {
  if (stream == nullptr || streams().at_the_call) return work();
  const std::lock_guard lock(stream->mutex);
  stream->queue.push_back(std::move(work));
}

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
  const std::lock_guard lock(emulated::streams().mutex);
  emulated::streams().all.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) stream->run_until(stream->told());
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream == nullptr) return cudaSuccess;
  const std::lock_guard lock(stream->mutex);
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new emulated::Event, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = emulated::find(stream);
  event->number = stream->told();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream != nullptr) event->stream->run_until(event->number);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated GPU");
  properties->totalGlobalMem = emulated::kMemoryBytes;
  properties->major = 9;
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
cudaError_t cudaMalloc(void** data, size_t bytes) {
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
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  emulated::enqueue(stream, [=] {
    const emulated::DeviceMemory::Open open(emulated::memory());
    std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::malloc(bytes);
  return *data == nullptr ? cudaErrorInvalidConfiguration : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) { return std::free(data), cudaSuccess; }

// The part of NVTX (NVIDIA's profiler ranges) that trainer_core/ops/cuda/device/ranges.h uses.
// Builds of the emulated backend find this header before the real one; it records ranges for tests.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// NOLINTBEGIN: names are NVTX's
#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE sizeof(nvtxEventAttributes_t)
constexpr int NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_PAYLOAD_TYPE_INT64 = 2;
struct nvtxEventAttributes_t {
  uint16_t version, size;
  int payloadType;
  struct {
    int64_t llValue;
  } payload;
  int messageType;
  struct {
    const char* ascii;
  } message;
};
using nvtxRangeId_t = uint64_t;

namespace emulated {
struct Listener {
  std::mutex mutex;
  bool is_recording = false;
  // By thread, texts in the order of its calls: "forward" or "layer 1" for the begin of a range,
  // "end" for its end, "phase STEP" for a phase, and "download" for a copy to the host.
  std::map<std::thread::id, std::vector<std::string>> recorded;

  void record(std::string what) {
    const std::lock_guard lock(mutex);
    if (is_recording) recorded[std::this_thread::get_id()].push_back(std::move(what));
  }
};
inline Listener& listener() {
  static Listener one;
  return one;
}
}  // namespace emulated

inline int nvtxRangePushEx(const nvtxEventAttributes_t* attributes) {
  std::string name = attributes->message.ascii;
  if (attributes->payloadType == NVTX_PAYLOAD_TYPE_INT64)
    name += ' ' + std::to_string(attributes->payload.llValue);
  emulated::listener().record(std::move(name));
  return 0;
}
inline int nvtxRangePop() { return emulated::listener().record("end"), 0; }
inline nvtxRangeId_t nvtxRangeStartA(const char* name) {
  return emulated::listener().record(std::string("phase ") + name), 1;
}
inline void nvtxRangeEnd(nvtxRangeId_t) {}
// NOLINTEND

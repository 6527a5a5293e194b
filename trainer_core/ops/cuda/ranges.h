// Named ranges of host calls for profilers that are injected into the process (Nsight Systems), by
// NVTX, whose header loads them. A range costs a few nanoseconds without a profiler, and nothing
// without the header (part of the CUDA toolkit).
#pragma once

#include <cstdint>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MUSTER_HAS_NVTX 1
#endif

namespace muster::trainer::cuda {

// Begins a range of the calling thread; ranges of a thread nest. A negative number is not shown.
inline void push_range([[maybe_unused]] const char* name, [[maybe_unused]] int64_t number) {
#ifdef MUSTER_HAS_NVTX
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  if (number >= 0) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = number;
  }
  (void)nvtxRangePushEx(&attributes);
#endif
}
inline void pop_range() {
#ifdef MUSTER_HAS_NVTX
  (void)nvtxRangePop();
#endif
}

// Begins a range of the process: it may end on another thread and may overlap ranges of threads. 0
// is no range.
inline uint64_t start_range([[maybe_unused]] const char* name) {
#ifdef MUSTER_HAS_NVTX
  return nvtxRangeStartA(name);
#else
  return 0;
#endif
}
inline void end_range([[maybe_unused]] uint64_t range) {
#ifdef MUSTER_HAS_NVTX
  if (range != 0) nvtxRangeEnd(range);
#endif
}

}  // namespace muster::trainer::cuda

// Named ranges of the host's calls, for profilers (Nsight Systems) that are injected into the process: NVTX, whose header loads them by
// itself. Without one a range costs a few nanoseconds, without the header (CUDA's toolkit has it) nothing.
#pragma once

#include <cstdint>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MUSTER_HAS_NVTX 1
#endif

namespace muster::trainer::cuda {

// Of the calling thread; ranges of a thread nest. A number below 0 is not shown.
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

// Of the process: may end on another thread, and overlaps those of threads. 0 is none.
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

// Names ranges of host calls for profilers such as Nsight Systems, by NVTX, a header of the CUDA
// toolkit. A range takes a few nanoseconds if no profiler is attached. Without the header, the
// functions do nothing.
#pragma once

#include <cstdint>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MUSTER_HAS_NVTX 1
#endif

namespace muster::trainer::cuda {

// Begins a range of the calling thread, which pop_range() ends; ranges of a thread nest. A profiler
// shows `number` unless it is negative.
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

// Begins a range of the process, which may end on another thread and may overlap ranges of threads.
// Returns its id for end_range(); 0: there is no range.
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

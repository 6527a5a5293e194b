// The part of NCCL's interface for profiler plugins that Muster's plugin needs: versions 3 (NCCL
// 2.26), 4 (2.27) and 5 (from 2.28), documented in NCCL's ext-profiler. Versions 1 and 2 do not
// report a kernel's end: they would only show that a collective was enqueued. The types are
// declared here, with NCCL's layouts, because the plugin must build without NCCL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::nccl {

enum Result : int { kSuccess = 0, kInternalError = 3 };
// Event types; a plugin requests events by a mask of these bits. a plan, which is the work of one
// kernel; always reported with other events
constexpr uint64_t kGroup = 1 << 0;
constexpr uint64_t kCollective = 1 << 1;
// states of a proxy thread; the proxy thread also reports kernel channels
constexpr uint64_t kProxyControl = 1 << 5;
// one channel of a collective's kernel; the event's parent is the collective
constexpr uint64_t kKernelChannel = 1 << 6;
// A state of kProxyControl: the proxy thread has no work left and sleeps.
constexpr int kProxySleeps = 15;

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                     ...);

// NCCL's description of a collective in version 3.
struct CollectiveV3 {
  const char* communicator;
  uint64_t communicator_hash;
  uint64_t sequence;  // number among the calls of this function
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;  // upper bound of the number of channels
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// The description in version 4, and its beginning in version 5. `channels`: the plan's number of
// channels; 0 if the planner does not report it. In 2.27 and some later versions these are the
// planners of CollNet and NVLS between nodes, and of kernels on symmetric memory.
struct CollectiveV4 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// An event. In NCCL a union follows `rank`; of it the plugin reads the collective only.
template <class Type, class Collective>
struct Event {
  Type type;
  void* parent;
  int rank;
  Collective collective;
};
using EventV3 = Event<uint8_t, CollectiveV3>;
using EventV4 = Event<uint8_t, CollectiveV4>;
using EventV5 = Event<uint64_t, CollectiveV4>;
static_assert(offsetof(EventV3, parent) == 8 && offsetof(EventV3, collective) == 24);
static_assert(offsetof(EventV5, parent) == 8 && offsetof(EventV5, collective) == 24);
static_assert(offsetof(CollectiveV3, datatype) == 64 && offsetof(CollectiveV3, channels) == 72);
static_assert(offsetof(CollectiveV4, datatype) == 48 && offsetof(CollectiveV4, channels) == 56);

template <class Init, class AnyEvent>
struct Profiler {
  const char* name;
  Init init;
  int (*start_event)(void* context, void** handle, AnyEvent* event);
  int (*stop_event)(void* handle);
  int (*record_event_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
using InitV3 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* name, uint64_t hash, int nodes,
                       int ranks, int rank, Log log);
using InitV5 = int (*)(void** context, uint64_t hash, int* mask, const char* name, int nodes,
                       int ranks, int rank, Log log);

}  // namespace muster::nccl

// The part of NCCL's profiler plugin interface that ours needs: versions 3 (NCCL 2.26), 4 (2.27)
// and 5 (from 2.28), documented in NCCL's ext-profiler. Versions 1 and 2 do not report a kernel's
// end, so they would only show that a collective was enqueued. Declared here because the plugin
// must build without NCCL; the layouts are NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::nccl {

enum Result : int { kSuccess = 0, kInternalError = 3 };
// Event types, as bits of the mask of events that a plugin requests.
// a plan: the work of one kernel; always reported with other events
constexpr uint64_t kGroup = 1 << 0;
constexpr uint64_t kCollective = 1 << 1;
// also for the thread that reports kernel channels
constexpr uint64_t kProxyControl = 1 << 5;
// one channel of a collective's kernel: its parent is the collective
constexpr uint64_t kKernelChannel = 1 << 6;
// A state of kProxyControl: the thread has no work left and sleeps.
constexpr int kProxySleeps = 15;

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                     ...);

struct CollectiveV3 {
  const char* communicator;
  uint64_t communicator_hash;
  uint64_t sequence;  // counts this function's calls only
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;  // an upper bound: the planner may use fewer
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// Also the prefix of version 5. `channels` is the plan's number; 0 if its planner does not report
// it: CollNet's and NVLS' between nodes, and kernels on symmetric memory, in 2.27 and some later
// versions.
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

// A union follows `rank`; only its collective is read.
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

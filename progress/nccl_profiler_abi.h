// What NCCL and a profiler plugin know of each other, as far as ours needs it: versions 3 (NCCL 2.26), 4 (2.27) and 5 (from
// 2.28) of the interface that NCCL documents in ext-profiler. Versions 1 and 2 tell of no kernel's end, so nothing could be said of a
// collective but that it was asked for. Declared here because a plugin has to build where there is no NCCL; layouts are NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::nccl {

enum Result : int { kSuccess = 0, kInternalError = 3 };
// Event types, and bits of what a plugin wants to be told of.
constexpr uint64_t kGroup = 1 << 0;  // a plan: what one kernel does; told of whenever any other is
constexpr uint64_t kCollective = 1 << 1;
constexpr uint64_t kProxyControl = 1 << 5;  // of the thread that tells of kernel channels, too
constexpr uint64_t kKernelChannel =
    1 << 6;  // one channel of a collective's kernel: its parent is the collective
// A state of kProxyControl: the thread has nothing left to look after, and waits for more.
constexpr int kProxySleeps = 15;

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                     ...);

struct CollectiveV3 {
  const char* communicator;
  uint64_t communicator_hash;
  uint64_t sequence;  // of this function's calls alone
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;  // at most: the planner may take fewer
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// Of version 5, too, where something follows that we do not read. `channels` are those of the plan; 0 where its planner does not say:
// CollNet's and NVLS' between nodes, and kernels on symmetric memory, in 2.27 and some later ones.
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

// A union follows `rank`, of which only the collective is read.
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

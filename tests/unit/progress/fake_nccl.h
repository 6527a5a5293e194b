// A replacement of NCCL for tests of a profiler plugin. It declares NCCL's types again, with all
// members as in NCCL's headers, so that tests find mistakes in the plugin's own declarations. It
// makes the same calls as NCCL's src/plugin/profiler.cc (2.26 for version 3, 2.27 for 4, 2.28 for
// 5):
//
//  one event mask for the complete process, passed to every init;
//  a kernel plan is a group: its event comes first, then its collectives', which versions 3 and 4
//  only have if the group has a handle;
//  all of them stop as soon as the kernel is launched; an event without a handle is not stopped;
//  kernel channels start and stop later, on the proxy's thread, which sleeps when it has none left.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

namespace muster::fake_nccl {

constexpr uint64_t kGroup = 1, kColl = 2, kP2p = 4, kProxyOp = 8, kProxyCtrl = 32, kKernelCh = 64;
constexpr int kSleep = 15, kWakeup = 16, kKernelChStop = 22;
using LogFn = void (*)(int, unsigned long, const char*, int, const char*, ...);

struct ProxyOp {
  pid_t pid;
  uint8_t channelId;
  int peer, nSteps, chunkSize, isSend;
};
struct NetPlugin {
  int64_t id;
  void* data;
};
struct KernelCh {
  uint8_t channelId;
  uint64_t pTimer;
};

struct DescrV3 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char* func;
      void const* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    ProxyOp proxyOp;
    struct {
      uint8_t channelId;
    } kernelCh;
    NetPlugin netPlugin;
  };
};
struct CollV4 {
  uint64_t seqNumber;
  const char* func;
  void const* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};
struct DescrV4 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollV4 coll;
    ProxyOp proxyOp;
    KernelCh kernelCh;
    NetPlugin netPlugin;
  };
};
struct DescrV5 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    struct : CollV4 {
      void* parentGroup;
    } coll;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      int root;
      void* stream;
      bool graphCaptured;
    } collApi;
    ProxyOp proxyOp;
    KernelCh kernelCh;
    NetPlugin netPlugin;
  };
};

template <class Init, class Descr>
struct Table {
  const char* name;
  Init init;
  int (*startEvent)(void* context, void** eHandle, Descr* eDescr);
  int (*stopEvent)(void* eHandle);
  int (*recordEventState)(void* eHandle, int eState, void* eStateArgs);
  int (*finalize)(void* context);
};
using V3 = Table<int (*)(void**, int*), DescrV3>;
using V4 = Table<int (*)(void**, int*, const char*, uint64_t, int, int, int, LogFn), DescrV4>;
using V5 = Table<int (*)(void**, uint64_t, int*, const char*, int, int, int, LogFn), DescrV5>;

// A collective that a test enqueues.
struct Call {
  const char* function;
  size_t count;
  const char* datatype;
  uint8_t channels;
};

struct GroupIdentity {
  uint64_t hash;
  const char* name;
  int ranks;
  int rank = 0;
};
inline void init(const V3& table, const GroupIdentity&, void** context, int* mask) {
  ASSERT_EQ(table.init(context, mask), 0);
}
inline void init(const V4& table, const GroupIdentity& identity, void** context, int* mask) {
  ASSERT_EQ(table.init(context, mask, identity.name, identity.hash, 1, identity.ranks,
                       identity.rank, nullptr),
            0);
}
inline void init(const V5& table, const GroupIdentity& identity, void** context, int* mask) {
  ASSERT_EQ(table.init(context, identity.hash, mask, identity.name, 1, identity.ranks,
                       identity.rank, nullptr),
            0);
}

// Sets the group's handle and the number of channels.
inline void fill(DescrV3& event, const GroupIdentity& identity, uint8_t channels, void* group) {
  event.parentObj = group;
  event.coll.commHash = identity.hash;
  event.coll.name = identity.name;
  event.coll.nMaxChannels = channels;
}
inline void fill(DescrV4& event, const GroupIdentity&, uint8_t channels, void* group) {
  event.parentObj = group;
  event.coll.nChannels = channels;
}
inline void fill(DescrV5& event, const GroupIdentity&, uint8_t channels, void* group) {
  event.parentObj = nullptr;  // would be the API call's event, which the plugin's mask excludes
  event.coll.parentGroup = group;
  event.coll.nChannels = channels;
}

// NCCL's event mask. Every init receives it and may change it; the last value filters all events.
inline int event_mask = 0;

// A rank of a communicator: makes NCCL's calls of the plugin.
template <class T>
class Communicator;
template <class Init, class Descr>
class Communicator<Table<Init, Descr>> {
 public:
  using AnyTable = Table<Init, Descr>;
  // Before version 5 (NCCL 2.28), collectives are reported only if their group has a handle.
  static constexpr bool kNeedsGroup = !std::is_same_v<Descr, DescrV5>;

  Communicator(const AnyTable& table, GroupIdentity identity) : table_(table), identity_(identity) {
    init(table_, identity, &context_, &event_mask);
  }

  const void* context() const { return context_; }

  // Launches the collectives as one kernel and returns their handles. A null handle: NCCL did not
  // make the call, or the plugin rejected the event.
  std::vector<void*> launch(const std::vector<Call>& calls) {
    std::vector<void*> handles(calls.size());
    void* group = nullptr;
    if ((event_mask & (kGroup | kColl | kKernelCh)) != 0) group = other_event(kGroup, nullptr);
    const bool reports_collectives =
        (event_mask & (kColl | kKernelCh)) != 0 && (group != nullptr || !kNeedsGroup);
    for (size_t i = 0; reports_collectives && i < calls.size(); ++i)
      handles[i] = start_collective(calls[i], group);
    // NCCL stops the events as soon as the collectives are enqueued
    for (void* handle : handles) stop_if_any(handle);
    stop_if_any(group);
    return handles;
  }
  void* enqueue(const Call& call) { return launch({call})[0]; }

  void* start_kernel(void* parent, uint8_t channel) {
    if ((event_mask & kKernelCh) == 0) return nullptr;
    Descr event{};
    event.type = static_cast<decltype(event.type)>(kKernelCh);
    event.parentObj = parent;
    event.kernelCh.channelId = channel;
    return start(event);
  }
  void stop_kernel(void* handle) {
    if (handle == nullptr) return;
    if (!std::is_same_v<Descr, DescrV3>) {
      EXPECT_EQ(table_.recordEventState(handle, kKernelChStop, nullptr), 0);
    }
    EXPECT_EQ(table_.stopEvent(handle), 0);
  }
  // Starts and stops a kernel with this number of channels.
  void run(void* parent, uint8_t channels) {
    std::vector<void*> started;
    for (uint8_t c = 0; c < channels; ++c) started.push_back(start_kernel(parent, c));
    for (void* handle : started) stop_kernel(handle);
  }
  // Reports that the proxy thread has no work left.
  void proxy_sleeps() {
    if ((event_mask & kProxyCtrl) == 0) return;
    void* handle = other_event(kProxyCtrl, nullptr);
    if (handle == nullptr) return;
    EXPECT_EQ(table_.recordEventState(handle, kSleep, nullptr), 0);
    EXPECT_EQ(table_.recordEventState(handle, kWakeup, nullptr), 0);
    EXPECT_EQ(table_.stopEvent(handle), 0);
  }
  void* other_event(uint64_t type, void* parent) {
    Descr event{};
    event.type = static_cast<decltype(event.type)>(type);
    event.parentObj = parent;
    return start(event);
  }
  void stop_if_any(void* handle) {
    if (handle == nullptr) return;
    EXPECT_EQ(table_.stopEvent(handle), 0);
  }
  void finalize() { EXPECT_EQ(table_.finalize(context_), 0); }

 private:
  void* start_collective(const Call& call, void* group) {
    Descr event;
    memset(static_cast<void*>(&event), 0xEE,
           sizeof(event));  // NCCL does not zero the remaining members, either
    event.type = static_cast<decltype(event.type)>(kColl);
    event.rank = identity_.rank;
    event.coll.seqNumber = 77;
    event.coll.func = call.function;
    event.coll.count = call.count;
    event.coll.datatype = call.datatype;
    fill(event, identity_, call.channels, group);
    return start(event);
  }
  void* start(Descr& event) {
    void* handle = nullptr;
    EXPECT_EQ(table_.startEvent(context_, &handle, &event), 0);
    return handle;
  }

  const AnyTable& table_;
  const GroupIdentity identity_;
  void* context_ = nullptr;
};

}  // namespace muster::fake_nccl

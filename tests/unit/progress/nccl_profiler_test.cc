// The plugin in a host that loads and calls it as NCCL does: by dlopen, by the newest table that both know, communicators first, then
// events from the thread that enqueues and from the one that looks after kernels. The tables are declared here once more, as NCCL's
// headers have them with all members, so that a mistake in our own declarations shows.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/progress_page.h"
#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

constexpr uint64_t kGroup = 1, kColl = 2, kP2p = 4, kProxyOp = 8, kKernelCh = 64;
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

// What a test asks of NCCL.
struct Call {
  const char* function;
  size_t count;
  const char* datatype;
  uint8_t channels;
};

void init(const V3& table, uint64_t, const char*, int, void** context, int* mask) {
  ASSERT_EQ(table.init(context, mask), 0);
}
void init(const V4& table, uint64_t hash, const char* name, int ranks, void** context, int* mask) {
  ASSERT_EQ(table.init(context, mask, name, hash, 1, ranks, 0, nullptr), 0);
}
void init(const V5& table, uint64_t hash, const char* name, int ranks, void** context, int* mask) {
  ASSERT_EQ(table.init(context, hash, mask, name, 1, ranks, 0, nullptr), 0);
}
void say_who(DescrV3& event, uint64_t hash, const char* name, uint8_t channels) {
  event.coll.commHash = hash;
  event.coll.name = name;
  event.coll.nMaxChannels = channels;
}
void say_who(DescrV4& event, uint64_t, const char*, uint8_t channels) {
  event.coll.nChannels = channels;
}
void say_who(DescrV5& event, uint64_t, const char*, uint8_t channels) {
  event.coll.nChannels = channels;
}

// One communicator of the program.
template <class T>
class Communicator;
template <class Init, class Descr>
class Communicator<Table<Init, Descr>> {
 public:
  using AnyTable = Table<Init, Descr>;
  Communicator(const AnyTable& table, uint64_t hash, const char* name, int ranks)
      : table_(table), hash_(hash), name_(name) {
    init(table_, hash, name, ranks, &context_, &mask_);
  }

  int mask() const { return mask_; }
  void* enqueue(const Call& call) {
    Descr event;
    memset(static_cast<void*>(&event), 0xEE,
           sizeof(event));  // what follows is not zero in NCCL either
    event.type = static_cast<decltype(event.type)>(kColl);
    event.parentObj = nullptr;
    event.rank = 0;
    event.coll.seqNumber = 77;
    event.coll.func = call.function;
    event.coll.count = call.count;
    event.coll.datatype = call.datatype;
    say_who(event, hash_, name_, call.channels);
    void* handle = start(event);
    EXPECT_EQ(table_.stopEvent(handle), 0);  // right away: it is enqueued
    return handle;
  }
  void* start_kernel(void* parent, uint8_t channel) {
    Descr event{};
    event.type = static_cast<decltype(event.type)>(kKernelCh);
    event.parentObj = parent;
    event.kernelCh.channelId = channel;
    return start(event);
  }
  void stop(void* handle) {
    EXPECT_EQ(table_.recordEventState(handle, 22, nullptr), 0);
    EXPECT_EQ(table_.stopEvent(handle), 0);
  }
  void* other_event(uint64_t type, void* parent) {
    Descr event{};
    event.type = static_cast<decltype(event.type)>(type);
    event.parentObj = parent;
    return start(event);
  }
  void finalize() { EXPECT_EQ(table_.finalize(context_), 0); }

 private:
  void* start(Descr& event) {
    void* handle = &event;
    EXPECT_EQ(table_.startEvent(context_, &handle, &event), 0);
    return handle;
  }

  const AnyTable& table_;
  const uint64_t hash_;
  const char* const name_;
  void* context_ = nullptr;
  int mask_ = -1;
};

// Each test is a process of its own, because a plugin's life is its process's.
class NcclProfiler : public ::testing::Test {
 protected:
  template <class T>
  const T& load(const char* symbol) {
    void* library = dlopen(MUSTER_NCCL_PROFILER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto* table = static_cast<const T*>(dlsym(library, symbol));
    EXPECT_NE(table, nullptr) << symbol;
    EXPECT_STREQ(table->name, "muster");
    return *table;
  }

  void in_a_rank(const std::function<void()>& body, bool with_page = true) {
    const pid_t child = fork();
    if (child == 0) {
      if (with_page) setenv("MUSTER_PROGRESS_PAGE", path_.c_str(), 1);
      for (const char* name : {"MUSTER_JOB", "MUSTER_ATTEMPT", "RANK"}) setenv(name, "1", 1);
      body();
      _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "its complaints are above";
  }

  ProgressPage page() const {
    auto read = read_progress_page(path_);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? *read : ProgressPage{};
  }

  // Two communicators, one of which has a collective under way and one in the queue.
  template <class T>
  void records_collectives(const char* symbol, uint32_t members) {
    in_a_rank([&] {
      const T& table = load<T>(symbol);
      Communicator<T> world(table, 0x1111222233334444, "world", 8);
      Communicator<T> pair(table, 0x5555666677778888, nullptr, 2);
      EXPECT_EQ(world.mask(), static_cast<int>(kColl | kKernelCh));
      void* first = world.enqueue({"AllReduce", 1 << 20, "ncclBfloat16", 2});
      EXPECT_EQ(page().groups[0].started, 0U);
      void* low = world.start_kernel(first, 0);
      void* high = world.start_kernel(first, 1);
      EXPECT_EQ(page().groups[0].started, 1U);
      world.stop(low);
      EXPECT_EQ(page().groups[0].completed, 0U) << "a channel is still at work";
      world.stop(high);
      EXPECT_EQ(page().groups[0].completed, 1U);
      void* second = world.enqueue({"ReduceScatter", 10, "ncclFloat64", 1});
      world.start_kernel(second, 0);
      world.enqueue({"Reduce", 3, "ncclFloat32", 1});
      EXPECT_EQ(world.other_event(kGroup, nullptr), nullptr);
      EXPECT_EQ(world.other_event(kP2p, nullptr), nullptr);
      EXPECT_EQ(world.other_event(kProxyOp, second), nullptr);
      world.stop(nullptr);
      pair.enqueue({"AllGather", 4, "ncclInt8", 0});  // without a kernel
      pair.finalize();
    });
    const ProgressPage seen = page();
    ASSERT_EQ(seen.group_count, 2U);
    EXPECT_EQ(seen.rank, 1);
    EXPECT_EQ(seen.phase, Phase::kInit) << "collectives alone are no phase";
    const GroupProgress& world = seen.groups[0];
    EXPECT_STREQ(world.name.data(), "nccl world");
    EXPECT_EQ(world.members, members);
    EXPECT_EQ(world.id, 0x22226666U);
    EXPECT_EQ(world.enqueued, 3U);
    EXPECT_EQ(world.started, 2U);
    EXPECT_EQ(world.completed, 1U);
    EXPECT_EQ(world.bytes, 12U);
    const GroupProgress& pair = seen.groups[1];
    EXPECT_STREQ(pair.name.data(), "nccl 5555666677778888");
    EXPECT_EQ(pair.enqueued, 1U);
    EXPECT_EQ(pair.completed, 1U);
    EXPECT_EQ(pair.kind, CollectiveKind::kAllGather);
    EXPECT_EQ(seen.ring[0].kind, CollectiveKind::kAllReduce);
    EXPECT_EQ(seen.ring[0].bytes, 2U << 20);
    EXPECT_STREQ(seen.ring[0].name.data(), "AllReduce");
    EXPECT_EQ(seen.ring[1].kind, CollectiveKind::kReduceScatter);
    EXPECT_EQ(seen.ring[1].bytes, 80U);
    EXPECT_EQ(seen.ring[2].kind, CollectiveKind::kNone);
    EXPECT_STREQ(seen.ring[2].name.data(), "Reduce");
  }

  const TempFolder folder_;
  const std::string path_ = folder_.file("progress.0");
};

// The third version does not say how many ranks there are, and names communicators with each collective.
TEST_F(NcclProfiler, RecordsCollectivesOfVersion3) {
  records_collectives<V3>("ncclProfiler_v3", 0);
}
TEST_F(NcclProfiler, RecordsCollectivesOfVersion4) {
  records_collectives<V4>("ncclProfiler_v4", 8);
}
TEST_F(NcclProfiler, RecordsCollectivesOfVersion5) {
  records_collectives<V5>("ncclProfiler_v5", 8);
}

TEST_F(NcclProfiler, WithoutMusterNcclNeedNotCall) {
  in_a_rank(
      [&] {
        Communicator<V5> world(load<V5>("ncclProfiler_v5"), 1, "world", 8);
        EXPECT_EQ(world.mask(), 0);
        EXPECT_EQ(world.enqueue({"AllReduce", 1, "ncclInt8", 1}), nullptr);
        Communicator<V3> old(load<V3>("ncclProfiler_v3"), 1, "world", 8);
        EXPECT_EQ(old.mask(), 0);
        EXPECT_EQ(old.enqueue({"AllReduce", 1, "ncclInt8", 1}), nullptr);
      },
      /*with_page=*/false);
}

// As NCCL has it: one thread enqueues, and the kernels' ends come from another one, later and later.
TEST_F(NcclProfiler, KernelsEndOnAnotherThread) {
  constexpr uint64_t kCalls = 20'000;
  in_a_rank([&] {
    const V4& table = load<V4>("ncclProfiler_v4");
    Communicator<V4> world(table, 7, "world", 8);
    std::vector<std::atomic<void*>> handles(kCalls);
    std::thread kernels([&] {
      for (auto& slot : handles) {
        void* handle = nullptr;
        while ((handle = slot.load()) == nullptr) std::this_thread::yield();
        void* channel = world.start_kernel(handle, 0);
        world.stop(channel);
      }
    });
    for (auto& slot : handles) slot = world.enqueue({"AllReduce", 1, "ncclFloat32", 1});
    kernels.join();
    // The last is known whatever became of those that fell behind.
    const GroupProgress group = page().groups[0];
    EXPECT_EQ(group.enqueued, kCalls);
    EXPECT_EQ(group.completed, kCalls);
  });
}

TEST_F(NcclProfiler, WhatIsForgottenOrForeignDoesNoHarm) {
  in_a_rank([&] {
    const V5& table = load<V5>("ncclProfiler_v5");
    Communicator<V5> world(table, 7, "world", 8);
    void* oldest = world.enqueue({"AllReduce", 1, "ncclFloat32", 1});
    void* kernel = world.start_kernel(oldest, 0);
    for (int i = 0; i < 5'000; ++i) world.enqueue({"AllReduce", 1, "ncclFloat32", 1});
    world.stop(kernel);
    EXPECT_EQ(page().groups[0].completed, 0U) << "the place of one collective is another one's now";
    EXPECT_EQ(world.start_kernel(oldest, 1), nullptr);
    EXPECT_EQ(world.start_kernel(kernel, 1), nullptr) << "a kernel is nobody's parent";
    for (const uintptr_t value : {uintptr_t{1}, uintptr_t{62}, ~uintptr_t{0}, ~uintptr_t{1}})
      world.stop(reinterpret_cast<void*>(value));
    // More communicators than a page has room for.
    std::vector<Communicator<V5>> more;
    for (uint64_t hash = 100; hash < 150; ++hash) more.emplace_back(table, hash, "more", 2);
    EXPECT_NE(more.front().mask(), 0);
    EXPECT_EQ(more.back().mask(), 0);
    EXPECT_EQ(more.back().enqueue({"AllReduce", 1, "ncclInt8", 1}), nullptr);
    EXPECT_EQ(page().group_count, 32U);
  });
}

// Nothing of it may meet symbols of the program.
TEST_F(NcclProfiler, ShowsItsTablesAlone) {
  void* library = dlopen(MUSTER_NCCL_PROFILER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* symbol : {"muster_progress_begin", "ncclProfiler_v1", "ncclProfiler_v2"})
    EXPECT_EQ(dlsym(library, symbol), nullptr) << symbol;
}

}  // namespace
}  // namespace muster

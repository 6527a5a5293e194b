#include "tests/unit/trainer_core/comm/fake_nccl.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

constexpr NcclResult kInvalidUsage = 5, kRemoteError = 6;

using Bytes = std::vector<std::byte>;

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  int connected = 0;  // ranks whose communicator is not delayed
  uint64_t round = 0;
  std::vector<Bytes> brought;  // inputs of the current round
  std::vector<Bytes> all;      // inputs of the previous round
  int here = 0;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // messages by (from, to)
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
  // Under the world's lock:
  int running = 0;  // operations that the device is executing for it
  bool aborted = false;
};
// A handle is a pointer to a shared pointer, because work of the device may outlive the handle.
using Shared = std::shared_ptr<Communicator>;

struct Worlds {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<World>> all;
  int next_id = 1;
  FakeNccl* fake = nullptr;
  const DeviceMemory* memory = nullptr;
  FakeNccl::Enqueue enqueue;
};
Worlds& worlds() {
  static Worlds all;
  return all;
}

size_t bytes_of(int type) { return type == kNcclBfloat16 ? 2 : 4; }

Bytes fetched(const void* from, size_t bytes) {
  Bytes host(bytes);
  worlds().memory->download(from, host.data(), bytes);
  return host;
}
void stored(const Bytes& host, void* to) { worlds().memory->upload(host.data(), to, host.size()); }

// Returns the inputs of all ranks once all have arrived; empty after an abort.
std::vector<Bytes> bring(Communicator& me, Bytes mine) {
  World& world = *me.world;
  std::unique_lock lock(world.mutex);
  const uint64_t round = world.round;
  world.brought.resize(static_cast<size_t>(world.ranks));
  world.brought[static_cast<size_t>(me.rank)] = std::move(mine);
  if (++world.here == world.ranks) {
    world.all = std::exchange(world.brought, {});
    world.here = 0;
    ++world.round;
    world.changed.notify_all();
  }
  world.changed.wait(lock, [&] { return world.round > round || me.aborted; });
  return me.aborted ? std::vector<Bytes>() : world.all;
}

Bytes sum(const std::vector<Bytes>& all, int type) {
  MUSTER_CHECK(type == kNcclFloat32) << "tests add fp32";
  std::vector<float> total(all[0].size() / sizeof(float)), part(total.size());
  for (const Bytes& bytes : all) {
    std::memcpy(part.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
  }
  Bytes result(all[0].size());
  std::memcpy(result.data(), total.data(), result.size());
  return result;
}

// Whether calls are grouped. Those of a group run on one stream, sends first, because receives wait
// for them.
thread_local bool grouped = false;
thread_local std::vector<std::function<void()>> sends, receives;
thread_local void* stream_of_group = nullptr;

using Work = std::function<void(Communicator& me)>;

// Returns work for the stream that does nothing if the communicator was aborted before.
std::function<void()> work_of(NcclCommunicator communicator, Work work) {
  ++worlds().fake->calls;
  return [me = *static_cast<Shared*>(communicator), work = std::move(work)] {
    {
      const std::lock_guard lock(me->world->mutex);
      if (me->aborted) return;
      ++me->running;
    }
    work(*me);
    const std::lock_guard lock(me->world->mutex);
    --me->running;
    me->world->changed.notify_all();
  };
}
NcclResult enqueue_work(NcclCommunicator communicator, void* stream, Work work) {
  worlds().enqueue(stream, work_of(communicator, std::move(work)));
  return kNcclSuccess;
}

NcclResult version_of(int* version) { return *version = 22'809, kNcclSuccess; }
NcclResult other_version(int* version) { return *version = 22'703, kNcclSuccess; }
const char* error_text(NcclResult result) {
  switch (result) {
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInvalidUsage:
      return "invalid usage";
    default:
      return "unhandled system error";
  }
}
NcclResult unique_id(NcclUniqueId* id) {
  const std::lock_guard lock(worlds().mutex);
  if (worlds().fake->failing_id) return kInvalidUsage;
  const std::string text = "world " + std::to_string(worlds().next_id++);
  std::memcpy(id->bytes.data(), text.data(), text.size());
  return kNcclSuccess;
}
NcclResult init(NcclCommunicator* communicator, int ranks, NcclUniqueId id, int rank,
                NcclConfig* config) {
  MUSTER_CHECK(config->blocking == 0 && config->magic == 0xcafebeef) << "another config";
  FakeNccl& fake = *worlds().fake;
  fake.max_ctas = config->max_ctas;
  if (fake.failing_init == rank) return fake.init_error;
  const std::lock_guard lock(worlds().mutex);
  auto& world = worlds().all[id.bytes.data()];
  if (world == nullptr) world = std::make_shared<World>();
  {
    const std::lock_guard ours(world->mutex);
    world->ranks = ranks;
    if (fake.pending_init != rank) ++world->connected;
  }
  ++fake.communicators;
  auto mine = std::make_shared<Communicator>();
  mine->world = world;
  mine->rank = rank;
  *communicator = new Shared(std::move(mine));
  return kNcclInProgress;
}
NcclResult async_error(NcclCommunicator communicator, NcclResult* found) {
  // No rank has a communicator before all ranks have one.
  World& world = *(*static_cast<Shared*>(communicator))->world;
  const std::lock_guard lock(world.mutex);
  const FakeNccl& fake = *worlds().fake;
  const bool is_broken = fake.remote_error || fake.remote_error_of == world.ranks;
  *found = world.connected < world.ranks ? kNcclInProgress
           : is_broken                   ? kRemoteError
                                         : kNcclSuccess;
  return kNcclSuccess;
}
NcclResult finalize(NcclCommunicator) { return kNcclInProgress; }
NcclResult destroy(NcclCommunicator communicator) {
  delete static_cast<Shared*>(communicator);
  --worlds().fake->communicators;
  return kNcclSuccess;
}
// Blocks until the device executes nothing for the communicator, so that its memory may be freed.
NcclResult abort(NcclCommunicator communicator) {
  ++worlds().fake->aborted;
  Communicator& me = **static_cast<Shared*>(communicator);
  {
    std::unique_lock lock(me.world->mutex);
    me.aborted = true;
    me.world->changed.notify_all();
    me.world->changed.wait(lock, [&] { return me.running == 0; });
  }
  return destroy(communicator);
}
// Combines all inputs into this rank's output.
template <class Make>
NcclResult together(NcclCommunicator communicator, void* stream, const void* from, void* to,
                    size_t bytes, const Make& make) {
  return enqueue_work(communicator, stream, [=](Communicator& me) {
    const std::vector<Bytes> all = bring(me, fetched(from, bytes));
    if (!all.empty()) stored(make(me, all), to);
  });
}
NcclResult all_reduce(const void* from, void* to, size_t count, int type, int,
                      NcclCommunicator communicator, void* stream) {
  return together(communicator, stream, from, to, count * bytes_of(type),
                  [type](Communicator&, const std::vector<Bytes>& all) { return sum(all, type); });
}
NcclResult all_gather(const void* from, void* to, size_t count, int type,
                      NcclCommunicator communicator, void* stream) {
  return together(communicator, stream, from, to, count * bytes_of(type),
                  [](Communicator&, const std::vector<Bytes>& all) {
                    Bytes joined;
                    for (const Bytes& part : all)
                      joined.insert(joined.end(), part.begin(), part.end());
                    return joined;
                  });
}
NcclResult reduce_scatter(const void* from, void* to, size_t count, int type, int,
                          NcclCommunicator communicator, void* stream) {
  const size_t bytes = count * bytes_of(type);
  const auto ranks = static_cast<size_t>((*static_cast<Shared*>(communicator))->world->ranks);
  return together(communicator, stream, from, to, bytes * ranks,
                  [=](Communicator& me, const std::vector<Bytes>& all) {
                    const Bytes whole = sum(all, type);
                    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(bytes) * me.rank;
                    return Bytes(first, first + static_cast<std::ptrdiff_t>(bytes));
                  });
}
NcclResult broadcast(const void* from, void* to, size_t count, int type, int root,
                     NcclCommunicator communicator, void* stream) {
  return together(communicator, stream, from, to, count * bytes_of(type),
                  [root](Communicator&, const std::vector<Bytes>& all) {
                    return all[static_cast<size_t>(root)];
                  });
}
NcclResult send(const void* from, size_t count, int type, int to, NcclCommunicator communicator,
                void* stream) {
  const auto work = [=](Communicator& me) {
    Bytes bytes = fetched(from, count * bytes_of(type));
    const std::lock_guard lock(me.world->mutex);
    me.world->mail[{me.rank, to}].push_back(std::move(bytes));
    me.world->changed.notify_all();
  };
  if (!grouped) return enqueue_work(communicator, stream, work);
  stream_of_group = stream;
  sends.push_back(work_of(communicator, work));
  return kNcclSuccess;
}
NcclResult recv(void* to, size_t count, int type, int from, NcclCommunicator communicator,
                void* stream) {
  const auto work = [=, bytes = count * bytes_of(type)](Communicator& me) {
    std::unique_lock lock(me.world->mutex);
    auto& mail = me.world->mail[{from, me.rank}];
    me.world->changed.wait(lock, [&] { return !mail.empty() || me.aborted; });
    if (me.aborted) return;
    MUSTER_CHECK(mail.front().size() == bytes) << "another message";
    const Bytes message = std::move(mail.front());
    mail.pop_front();
    lock.unlock();
    stored(message, to);
  };
  if (!grouped) return enqueue_work(communicator, stream, work);
  stream_of_group = stream;
  receives.push_back(work_of(communicator, work));
  return kNcclSuccess;
}
NcclResult group_start() { return grouped = true, kNcclSuccess; }
NcclResult group_end() {
  grouped = false;
  auto all = std::exchange(sends, {});
  for (auto& receive : std::exchange(receives, {})) all.push_back(std::move(receive));
  if (all.empty()) return kNcclSuccess;
  worlds().enqueue(stream_of_group, [all = std::move(all)] {
    for (const auto& work : all) work();
  });
  return kNcclSuccess;
}

}  // namespace

FakeNccl::FakeNccl(const DeviceMemory& memory, Enqueue enqueue) {
  const std::lock_guard lock(worlds().mutex);
  worlds().enqueue = std::move(enqueue);
  worlds().fake = this;
  worlds().memory = &memory;
}
FakeNccl::~FakeNccl() {
  const std::lock_guard lock(worlds().mutex);
  worlds().fake = nullptr;
  worlds().all.clear();
}

std::shared_ptr<const NcclApi> FakeNccl::api(int version) const {
  NcclApi api;
  api.version = version == 22'809 ? version_of : other_version;
  api.error_text = error_text;
  api.unique_id = unique_id;
  api.init = init;
  api.async_error = async_error;
  api.finalize = finalize;
  api.destroy = destroy;
  api.abort = abort;
  api.all_reduce = all_reduce;
  api.all_gather = all_gather;
  api.reduce_scatter = reduce_scatter;
  api.broadcast = broadcast;
  api.send = send;
  api.recv = recv;
  api.group_start = group_start;
  api.group_end = group_end;
  return std::make_shared<const NcclApi>(api);
}

}  // namespace muster::trainer

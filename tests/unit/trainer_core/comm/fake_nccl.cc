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

constexpr NcclResult kSystemError = 2, kRemoteError = 6;

using Bytes = std::vector<std::byte>;

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  int connected = 0;  // ranks whose communicator is not held up
  uint64_t round = 0;
  std::vector<Bytes> brought;  // to the round that runs
  std::vector<Bytes> all;      // of the round before
  int here = 0;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // from, to
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
};

struct Worlds {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<World>> all;
  int next_id = 1;
  FakeNccl* fake = nullptr;
  const DeviceMemory* memory = nullptr;
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

// What all ranks bring, when all have.
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
  world.changed.wait(lock, [&] { return world.round > round; });
  return world.all;
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

Communicator& of(NcclCommunicator communicator) {
  ++worlds().fake->calls;
  return *static_cast<Communicator*>(communicator);
}

// Receives of a group wait for its sends.
thread_local bool grouped = false;
thread_local std::vector<std::function<void()>> receives;

NcclResult version_of(int* version) { return *version = 22'809, kNcclSuccess; }
NcclResult other_version(int* version) { return *version = 22'703, kNcclSuccess; }
const char* error_text(NcclResult result) {
  return result == kRemoteError ? "remote process exited or there was a network error"
                                : "unhandled system error";
}
NcclResult unique_id(NcclUniqueId* id) {
  const std::lock_guard lock(worlds().mutex);
  const std::string text = "world " + std::to_string(worlds().next_id++);
  std::memcpy(id->bytes.data(), text.data(), text.size());
  return kNcclSuccess;
}
NcclResult init(NcclCommunicator* communicator, int ranks, NcclUniqueId id, int rank,
                NcclConfig* config) {
  MUSTER_CHECK(config->blocking == 0 && config->magic == 0xcafebeef) << "another config";
  FakeNccl& fake = *worlds().fake;
  if (fake.failing_init == rank) return kSystemError;
  const std::lock_guard lock(worlds().mutex);
  auto& world = worlds().all[id.bytes.data()];
  if (world == nullptr) world = std::make_shared<World>();
  {
    const std::lock_guard ours(world->mutex);
    world->ranks = ranks;
    if (fake.pending_init != rank) ++world->connected;
  }
  ++fake.communicators;
  *communicator = new Communicator{world, rank};
  return kNcclInProgress;
}
NcclResult async_error(NcclCommunicator communicator, NcclResult* found) {
  // Nobody has a communicator before all have.
  World& world = *static_cast<Communicator*>(communicator)->world;
  const std::lock_guard lock(world.mutex);
  *found = world.connected < world.ranks ? kNcclInProgress
           : worlds().fake->remote_error ? kRemoteError
                                         : kNcclSuccess;
  return kNcclSuccess;
}
NcclResult finalize(NcclCommunicator) { return kNcclInProgress; }
NcclResult destroy(NcclCommunicator communicator) {
  delete static_cast<Communicator*>(communicator);
  --worlds().fake->communicators;
  return kNcclSuccess;
}
NcclResult abort(NcclCommunicator communicator) {
  ++worlds().fake->aborted;
  return destroy(communicator);
}
NcclResult all_reduce(const void* from, void* to, size_t count, int type, int,
                      NcclCommunicator communicator, void*) {
  stored(sum(bring(of(communicator), fetched(from, count * bytes_of(type))), type), to);
  return kNcclSuccess;
}
NcclResult all_gather(const void* from, void* to, size_t count, int type,
                      NcclCommunicator communicator, void*) {
  Bytes all;
  for (const Bytes& part : bring(of(communicator), fetched(from, count * bytes_of(type))))
    all.insert(all.end(), part.begin(), part.end());
  stored(all, to);
  return kNcclSuccess;
}
NcclResult reduce_scatter(const void* from, void* to, size_t count, int type, int,
                          NcclCommunicator communicator, void*) {
  Communicator& me = of(communicator);
  const size_t bytes = count * bytes_of(type);
  const Bytes all =
      sum(bring(me, fetched(from, bytes * static_cast<size_t>(me.world->ranks))), type);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(bytes) * me.rank;
  stored(Bytes(first, first + static_cast<std::ptrdiff_t>(bytes)), to);
  return kNcclSuccess;
}
NcclResult broadcast(const void* from, void* to, size_t count, int type, int root,
                     NcclCommunicator communicator, void*) {
  const auto all = bring(of(communicator), fetched(from, count * bytes_of(type)));
  stored(all[static_cast<size_t>(root)], to);
  return kNcclSuccess;
}
NcclResult send(const void* from, size_t count, int type, int to, NcclCommunicator communicator,
                void*) {
  Communicator& me = of(communicator);
  const std::lock_guard lock(me.world->mutex);
  me.world->mail[{me.rank, to}].push_back(fetched(from, count * bytes_of(type)));
  me.world->changed.notify_all();
  return kNcclSuccess;
}
NcclResult recv(void* to, size_t count, int type, int from, NcclCommunicator communicator, void*) {
  Communicator& me = of(communicator);
  const auto receive = [&me, to, from, bytes = count * bytes_of(type)] {
    std::unique_lock lock(me.world->mutex);
    auto& mail = me.world->mail[{from, me.rank}];
    me.world->changed.wait(lock, [&] { return !mail.empty(); });
    MUSTER_CHECK(mail.front().size() == bytes) << "another message";
    stored(mail.front(), to);
    mail.pop_front();
  };
  if (grouped) {
    receives.emplace_back(receive);
  } else {
    receive();
  }
  return kNcclSuccess;
}
NcclResult group_start() { return grouped = true, kNcclSuccess; }
NcclResult group_end() {
  grouped = false;
  for (const auto& receive : std::exchange(receives, {})) receive();
  return kNcclSuccess;
}

}  // namespace

FakeNccl::FakeNccl(const DeviceMemory& memory) {
  const std::lock_guard lock(worlds().mutex);
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

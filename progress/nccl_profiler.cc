// libmuster-nccl-profiler.so: a NCCL program's collectives in its progress page, with no change to the program.
//
//   NCCL_PROFILER_PLUGIN=/…/libmuster-nccl-profiler.so
//
// Each communicator is a group of the page: named as the program calls it, or by its hash, which is the same on all its ranks. A
// collective is enqueued when NCCL is asked for it, started with its first kernel channel, and done with the last one; NCCL's own
// "stop" of it only says that it was enqueued. Sends and receives are left out: a communicator's ranks do not have the same ones, so
// their numbers would not compare. NCCL's sequence numbers count each function apart; the page's count them all, in the order in which
// every rank has to ask for them.
//
// NCCL calls from several threads, and stops events without a context; so what is known of communicators is static here. A
// handle is a number and not a pointer: nothing is allocated per collective, and one that NCCL keeps for longer than we remember
// is recognised as such. Whatever is wrong, NCCL is told that all is well: a profiler must not end a training.
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "progress/muster_progress.h"
#include "progress/nccl_profiler_abi.h"

namespace muster::nccl {
namespace {

// Collectives of one communicator that may be on their way at once; what was asked for longer ago is not followed any more.
constexpr uint64_t kInFlight = 1024;
constexpr int kHandleKernel =
    1;  // lowest bit: a kernel channel's; then the communicator, then the number
constexpr int kCommunicatorBits = 5;
static_assert(MUSTER_GROUPS_MAX == 1 << kCommunicatorBits);

struct Flight {
  std::atomic<uint64_t> number{0};
  std::atomic<uint32_t> channels{0};
  std::atomic<uint32_t> stopped{0};
};

struct Communicator {
  uint64_t hash = 0;
  Flight flights[kInFlight];
};

struct State {
  std::mutex mutex;  // for communicators that come
  bool is_open = false;
  muster_progress page{};
  std::atomic<int> count{0};
  Communicator communicators[MUSTER_GROUPS_MAX];  // by the page's group
};

State& state() {
  static State only;
  return only;
}

struct Name {
  const char* text;
  muster_collective kind;
};
constexpr Name kFunctions[] = {{"AllReduce", MUSTER_ALL_REDUCE},
                               {"AllGather", MUSTER_ALL_GATHER},
                               {"ReduceScatter", MUSTER_REDUCE_SCATTER},
                               {"AlltoAll", MUSTER_ALL_TO_ALL},
                               {"Broadcast", MUSTER_BROADCAST}};
struct Datatype {
  const char* name;
  uint64_t bytes;
};
constexpr Datatype kDatatypes[] = {
    {"ncclInt8", 1},    {"ncclUint8", 1},    {"ncclInt32", 4},      {"ncclUint32", 4},
    {"ncclInt64", 8},   {"ncclUint64", 8},   {"ncclFloat16", 2},    {"ncclFloat32", 4},
    {"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}};

muster_collective kind_of(const char* function) {
  for (const Name& known : kFunctions) {
    if (function != nullptr && strcmp(function, known.text) == 0) return known.kind;
  }
  return MUSTER_NO_COLLECTIVE;
}

// Position in the table and 1, which is what tells types apart on the page; 0: another one, of unknown size.
uint32_t number_of_datatype(const char* name) {
  for (uint32_t i = 0; i < sizeof(kDatatypes) / sizeof(kDatatypes[0]); ++i) {
    if (name != nullptr && strcmp(name, kDatatypes[i].name) == 0) return i + 1;
  }
  return 0;
}

// Opens the page with the first communicator. False: NCCL need not call at all.
bool open_page() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.is_open) s.is_open = muster_progress_begin(&s.page) == 0;
  return s.is_open;
}

// The group of this communicator; -1 when the page has no room for it. `ranks`: 0 when NCCL does not say.
int communicator(uint64_t hash, const char* name, int ranks) {
  State& s = state();
  const int known = s.count.load(std::memory_order_acquire);
  for (int i = 0; i < known; ++i) {
    if (s.communicators[i].hash == hash) return i;
  }
  const std::lock_guard lock(s.mutex);
  const int count = s.count.load(std::memory_order_relaxed);
  for (int i = known; i < count; ++i) {
    if (s.communicators[i].hash == hash) return i;
  }
  if (count >= MUSTER_GROUPS_MAX) return -1;
  char shown[MUSTER_GROUP_NAME_BYTES];
  if (name != nullptr && name[0] != '\0') {
    snprintf(shown, sizeof(shown), "nccl %s", name);
  } else {
    snprintf(shown, sizeof(shown), "nccl %016" PRIx64, hash);
  }
  const auto id = static_cast<uint32_t>(hash ^ (hash >> 32));
  if (muster_progress_group(&s.page, shown, static_cast<uint32_t>(ranks), id) != count) return -1;
  s.communicators[count].hash = hash;
  s.count.store(count + 1, std::memory_order_release);
  return count;
}

void* handle_of(int group, uint64_t number, int kind) {
  const uint64_t value = (number << (kCommunicatorBits + 1)) | (static_cast<uint64_t>(group) << 1) |
                         static_cast<uint64_t>(kind);
  void* handle = nullptr;
  memcpy(&handle, &value, sizeof(handle));
  return handle;
}

struct Followed {
  int group = -1;
  uint64_t number = 0;
  bool is_kernel = false;
  Flight* flight = nullptr;  // none: nobody's handle, or one of long ago
};

Followed follow(void* handle) {
  uint64_t value = 0;
  memcpy(&value, &handle, sizeof(value));
  Followed found;
  found.is_kernel = (value & kHandleKernel) != 0;
  found.group = static_cast<int>((value >> 1) % MUSTER_GROUPS_MAX);
  found.number = value >> (kCommunicatorBits + 1);
  if (found.number == 0 || found.group >= state().count.load(std::memory_order_acquire))
    return found;
  Flight& flight = state().communicators[found.group].flights[found.number % kInFlight];
  if (flight.number.load(std::memory_order_acquire) == found.number) found.flight = &flight;
  return found;
}

template <class Collective>
void* enqueue(int group, const Collective& collective) {
  State& s = state();
  const uint32_t datatype = number_of_datatype(collective.datatype);
  const uint64_t size = datatype == 0 ? 0 : kDatatypes[datatype - 1].bytes;
  const uint64_t number =
      muster_progress_enqueued(&s.page, group, kind_of(collective.function), collective.function,
                               collective.count * size, datatype);
  if (number == 0) return nullptr;
  Flight& flight = s.communicators[group].flights[number % kInFlight];
  flight.number.store(0, std::memory_order_release);
  flight.channels.store(collective.channels, std::memory_order_relaxed);
  flight.stopped.store(0, std::memory_order_relaxed);
  flight.number.store(number, std::memory_order_release);
  return handle_of(group, number, 0);
}

void* start_kernel(void* parent) {
  const Followed collective = follow(parent);
  if (collective.flight == nullptr || collective.is_kernel) return nullptr;
  muster_progress_started(&state().page, collective.group, collective.number);
  return handle_of(collective.group, collective.number, kHandleKernel);
}

int stop_event(void* handle) {
  const Followed event = follow(handle);
  if (event.flight == nullptr) return kSuccess;
  const uint32_t channels = event.flight->channels.load(std::memory_order_relaxed);
  // One that has no channels has no kernel of which anything could be heard.
  const bool is_done =
      event.is_kernel
          ? event.flight->stopped.fetch_add(1, std::memory_order_acq_rel) + 1 == channels
          : channels == 0;
  if (is_done) muster_progress_done(&state().page, event.group, event.number);
  return kSuccess;
}

int record_event_state(void*, int, void*) { return kSuccess; }
int finalize(void*) { return kSuccess; }

// A context is the communicator's group and 1.
void* context_of(int group) { return handle_of(0, static_cast<uint64_t>(group) + 1, 0); }
int group_of_context(void* context) { return static_cast<int>(follow(context).number) - 1; }

int begin(void** context, int* mask, uint64_t hash, const char* name, int ranks) {
  *context = nullptr;
  *mask = 0;
  if (!open_page()) return kSuccess;
  const int group = communicator(hash, name, ranks);
  if (group < 0) return kSuccess;
  *context = context_of(group);
  *mask = static_cast<int>(kCollective | kKernelChannel);
  return kSuccess;
}

int init_v3(void** context, int* mask) {
  *context = nullptr;
  *mask = open_page() ? static_cast<int>(kCollective | kKernelChannel) : 0;
  return kSuccess;
}
int init_v4(void** context, int* mask, const char* name, uint64_t hash, int, int ranks, int, Log) {
  return begin(context, mask, hash, name, ranks);
}
int init_v5(void** context, uint64_t hash, int* mask, const char* name, int, int ranks, int, Log) {
  return begin(context, mask, hash, name, ranks);
}

int start_event_v3(void*, void** handle, EventV3* event) {
  *handle = nullptr;
  if (event->type == kKernelChannel) *handle = start_kernel(event->parent);
  if (event->type != kCollective) return kSuccess;
  const CollectiveV3& collective = event->collective;
  const int group =
      communicator(collective.communicator_hash, collective.communicator, /*ranks=*/0);
  if (group >= 0) *handle = enqueue(group, collective);
  return kSuccess;
}

template <class AnyEvent>
int start_event(void* context, void** handle, AnyEvent* event) {
  *handle = nullptr;
  const int group = group_of_context(context);
  if (event->type == kKernelChannel) *handle = start_kernel(event->parent);
  if (event->type == kCollective && group >= 0) *handle = enqueue(group, event->collective);
  return kSuccess;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)
extern const Profiler<InitV3, EventV3> ncclProfiler_v3;
extern const Profiler<InitV4, EventV4> ncclProfiler_v4;
extern const Profiler<InitV5, EventV5> ncclProfiler_v5;
const Profiler<InitV3, EventV3> ncclProfiler_v3 = {
    "muster", init_v3, start_event_v3, stop_event, record_event_state, finalize};
const Profiler<InitV4, EventV4> ncclProfiler_v4 = {
    "muster", init_v4, start_event<EventV4>, stop_event, record_event_state, finalize};
const Profiler<InitV5, EventV5> ncclProfiler_v5 = {
    "muster", init_v5, start_event<EventV5>, stop_event, record_event_state, finalize};
#pragma GCC visibility pop
}

}  // namespace muster::nccl

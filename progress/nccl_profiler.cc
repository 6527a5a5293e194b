// libmuster-nccl-profiler.so: records the collectives of an unchanged NCCL program in its progress
// page.
//
//   NCCL_PROFILER_PLUGIN=/…/libmuster-nccl-profiler.so
//
// Each communicator is a group of the page, named by the program, or by its hash, which is the same
// on all its ranks. A process with several GPUs has several ranks of one communicator: each is
// followed separately, by NCCL's context. Sends and receives are left out: the ranks of a
// communicator make different ones, so their numbers could not be compared. NCCL's sequence numbers
// count each function separately; the page's count all collectives, in the order in which every
// rank must enqueue them.
//
// A collective is enqueued when its kernel is launched (NCCL's "stop" of it means no more), started
// with its first kernel channel, and done
//
//   when all its channels have stopped, if their number is known, and all earlier ones are done; or
//   when a later kernel starts: kernels of one communicator run one after the other; or
//   when the proxy thread that reports its channels sleeps, which means that it has no work left.
//
// In version 3 the reported number of channels is an upper bound, and 0 means unknown: then the
// last two rules apply. It is not enough that all started channels have stopped: others may not
// have begun.
//
// NCCL calls from several threads, and stops events without a context; so the state of
// communicators is static here, and remains when NCCL closes the library with its last
// communicator. All callbacks return success to NCCL, whatever goes wrong: a profiler must not end
// a training.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "progress/nccl_page.h"
#include "progress/nccl_profiler_abi.h"
#include "progress/nccl_profiler_state.h"

namespace muster::nccl {
namespace {

// NCCL has one mask for all communicators and passes it to every init: the value must be the same
// each time.
constexpr uint64_t kWanted = kCollective | kKernelChannel | kProxyControl;

Communicators& all() {
  // Never destroyed, because NCCL's threads may outlive main().
  static auto* const only = new Communicators;
  return *only;
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

// Returns the position in the table plus 1, which distinguishes types on the page; 0: a type of
// unknown size.
uint32_t number_of_datatype(const char* name) {
  for (uint32_t i = 0; i < sizeof(kDatatypes) / sizeof(kDatatypes[0]); ++i) {
    if (name != nullptr && strcmp(name, kDatatypes[i].name) == 0) return i + 1;
  }
  return 0;
}

// Opens the page with the first communicator. False: NCCL need not call us.
bool open_page() {
  Communicators& a = all();
  const std::lock_guard lock(a.mutex);
  if (!a.is_open) a.is_open = muster_progress_begin(&a.page) == 0;
  return a.is_open;
}

// Takes a free slot, preferably one that already has a group on the page; nullptr: all are taken.
Communicator* take() {
  Communicators& a = all();
  const std::lock_guard lock(a.mutex);
  Communicator* free = nullptr;
  for (Communicator& c : a.slots) {
    if (!c.is_taken && (free == nullptr || (free->group < 0 && c.group >= 0))) free = &c;
  }
  if (free != nullptr) free->is_taken = true;
  return free;
}

void release(Communicator& c) {
  const std::lock_guard lock(all().mutex);
  c.is_taken = false;
  c.is_named = false;
  c.generation = (c.generation + 1) & kGenerationMask;
}

// Returns the lowest ordinal that no other rank of this communicator has in this process. Requires
// the mutex.
int free_ordinal(uint64_t hash) {
  uint64_t used = 0;
  for (const Communicator& c : all().slots) {
    if (c.is_taken && c.is_named && c.hash == hash) used |= uint64_t{1} << c.ordinal;
  }
  return __builtin_ctzll(~used);
}

// Shows the communicator on the page, if there is room. `ranks`: 0 if NCCL does not report it.
void name(Communicator& c, uint64_t hash, const char* text, int ranks) {
  Communicators& a = all();
  const std::lock_guard lock(a.mutex);
  if (c.is_named) return;
  c.hash = hash;
  c.ordinal = free_ordinal(hash);
  char shown[MUSTER_GROUP_NAME_BYTES];
  // Names on a page are unique: the second GPU's group is "/1", and matches the second ones of
  // other processes.
  char which[8] = "";
  if (c.ordinal > 0) snprintf(which, sizeof(which), "/%d", c.ordinal);
  if (text != nullptr && text[0] != '\0') {
    snprintf(shown, sizeof(shown), "nccl %.40s%s", text, which);
  } else {
    snprintf(shown, sizeof(shown), "nccl %016" PRIx64 "%s", hash, which);
  }
  // A page's members are processes. With several ranks per process their number is unknown.
  const auto members = static_cast<uint32_t>(c.ordinal > 0 ? 0 : ranks);
  if (c.ordinal > 0) {
    for (const Communicator& other : a.slots)
      if (other.is_taken && other.is_named && other.hash == hash)
        forget_members(&a.page, other.group);
  }
  const auto id = static_cast<uint32_t>(hash ^ (hash >> 32));
  if (c.group < 0) {
    c.group = muster_progress_group(&a.page, shown, members, id);
  } else {
    replace_group(&a.page, c.group, shown, members, id);
  }
  c.enqueued = c.planned = c.done = 0;
  c.is_named = true;
}

size_t slot_of(const Communicator& c) { return static_cast<size_t>(&c - all().slots); }
Handle handle_of(const Communicator& c, Handle::Kind kind, uint64_t number) {
  return {.kind = kind, .slot = slot_of(c), .number = number, .generation = c.generation};
}

// Returns nullptr for a handle that is not ours, beyond the followed communicators, or of a closed
// one.
Communicator* communicator_of(const Handle& handle) {
  Communicator& c = all().slots[handle.slot];
  return handle.generation == c.generation ? &c : nullptr;
}
Communicator* communicator_of(void* context) {
  return context == nullptr ? nullptr : communicator_of(Handle::from(context));
}

// Returns nullptr for a foreign or old handle, or one of a closed communicator.
Flight* flight_of(Handle handle) {
  Communicator* c = communicator_of(handle);
  if (c == nullptr || handle.number == 0) return nullptr;
  handle.kind = Handle::kOfCollective;
  Flight& flight = c->flights[handle.number % kInFlight];
  return flight.handle.load(std::memory_order_acquire) == handle.word() ? &flight : nullptr;
}

void done(Communicator& c, uint64_t number) {
  muster_progress_done(&all().page, c.group, number);
  c.done = number;
}
// Completes this collective and all earlier ones that are still in the page's ring.
void all_done(Communicator& c, uint64_t last) {
  const uint64_t remembered = last - std::min<uint64_t>(last, MUSTER_RING_LENGTH);
  for (uint64_t n = std::max<uint64_t>(c.done, remembered) + 1; n <= last; ++n) done(c, n);
}
// Collectives of one kernel run concurrently, and a later one may end first: the page's number
// counts only a complete prefix.
void done_in_order(Communicator& c) {
  for (uint64_t i = 0; i < kInFlight; ++i) {
    const uint64_t next = c.done + 1;
    const Flight* flight = flight_of(handle_of(c, Handle::kOfCollective, next));
    if (flight == nullptr || flight->channels == 0 || flight->stopped != flight->channels) return;
    done(c, next);
  }
}

template <class Collective>
void* enqueue(Communicator& c, const Collective& collective) {
  const uint32_t datatype = number_of_datatype(collective.datatype);
  const uint64_t size = datatype == 0 ? 0 : kDatatypes[datatype - 1].bytes;
  const uint64_t number =
      muster_progress_enqueued(&all().page, c.group, kind_of(collective.function),
                               collective.function, collective.count * size, datatype);
  if (number == 0) return nullptr;
  const Handle handle = handle_of(c, Handle::kOfCollective, number);
  Flight& flight = c.flights[number % kInFlight];
  flight.handle.store(0, std::memory_order_release);
  flight.before.store(c.planned, std::memory_order_relaxed);
  flight.channels.store(collective.channels, std::memory_order_relaxed);
  flight.stopped.store(0, std::memory_order_relaxed);
  flight.handle.store(handle.word(), std::memory_order_release);
  c.enqueued = number;
  return handle.pointer();
}

// By slot: the newest collective whose kernel start this thread has reported since it last slept.
thread_local uint64_t newest_checked[MUSTER_GROUPS_MAX];

void* start_kernel(void* parent) {
  const Handle collective = Handle::from(parent);
  Flight* flight = flight_of(collective);
  if (flight == nullptr || collective.kind != Handle::kOfCollective) return nullptr;
  Communicator& c = all().slots[collective.slot];
  const uint64_t before = flight->before.exchange(0, std::memory_order_relaxed);
  if (before != 0) all_done(c, before);
  muster_progress_started(&all().page, c.group, collective.number);
  uint64_t& newest = newest_checked[collective.slot];
  newest = std::max(newest, collective.word());
  return handle_of(c, Handle::kOfKernel, collective.number).pointer();
}

int stop_event(void* pointer) {
  const Handle event = Handle::from(pointer);
  Flight* flight = event.kind == Handle::kOfKernel ? flight_of(event) : nullptr;
  if (flight == nullptr) return kSuccess;
  const uint32_t stopped = flight->stopped.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (stopped == flight->channels.load(std::memory_order_relaxed))
    done_in_order(all().slots[event.slot]);
  return kSuccess;
}

int record_event_state(void* pointer, int state, void*) {
  if (state != kProxySleeps || Handle::from(pointer).kind != Handle::kOfProxy) return kSuccess;
  for (uint64_t& newest : newest_checked) {
    const Handle handle = Handle::from(newest);
    if (newest == 0) continue;
    if (Communicator* c = communicator_of(handle)) all_done(*c, handle.number);
    newest = 0;
  }
  return kSuccess;
}

int finalize(void* context) {
  if (Communicator* c = communicator_of(context)) release(*c);
  return kSuccess;
}

// If there is no room, the context is null and the communicator is not followed.
Communicator* begin(void** context, int* mask) {
  *context = nullptr;
  *mask = open_page() ? static_cast<int>(kWanted) : 0;
  Communicator* c = *mask == 0 ? nullptr : take();
  if (c != nullptr) *context = handle_of(*c, Handle::kOfOther, 0).pointer();
  return c;
}

int begin(void** context, int* mask, uint64_t hash, const char* text, int ranks) {
  Communicator* c = begin(context, mask);
  if (c == nullptr) return kSuccess;
  name(*c, hash, text, ranks);
  if (c->group >= 0) return kSuccess;
  release(*c);
  *context = nullptr;
  return kSuccess;
}

int init_v3(void** context, int* mask) {
  begin(context, mask);
  return kSuccess;
}
int init_v4(void** context, int* mask, const char* text, uint64_t hash, int, int ranks, int, Log) {
  return begin(context, mask, hash, text, ranks);
}
int init_v5(void** context, uint64_t hash, int* mask, const char* text, int, int ranks, int, Log) {
  return begin(context, mask, hash, text, ranks);
}

// In version 3, only a collective's event reveals the communicator of a context.
void name_by_event(Communicator& c, const EventV3& event) {
  if (!c.is_named)
    name(c, event.collective.communicator_hash, event.collective.communicator, /*ranks=*/0);
}
template <class AnyEvent>
void name_by_event(Communicator&, const AnyEvent&) {}

template <class AnyEvent>
int start_event(void* context, void** handle, AnyEvent* event) {
  *handle = nullptr;
  Communicator* c = communicator_of(context);
  switch (event->type) {
    case kGroup:
      // Up to version 4, NCCL reports collectives only if their group has a handle.
      *handle = Handle{.kind = Handle::kOfOther}.pointer();
      if (c != nullptr) c->planned = c->enqueued.load();
      break;
    case kCollective:
      if (c == nullptr) break;
      name_by_event(*c, *event);
      *handle = enqueue(*c, event->collective);
      break;
    case kProxyControl:
      *handle = Handle{.kind = Handle::kOfProxy}.pointer();
      break;
    case kKernelChannel:
      *handle = start_kernel(event->parent);
      break;
    default:
      break;
  }
  return kSuccess;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)
extern const Profiler<InitV3, EventV3> ncclProfiler_v3;
extern const Profiler<InitV4, EventV4> ncclProfiler_v4;
extern const Profiler<InitV5, EventV5> ncclProfiler_v5;
const Profiler<InitV3, EventV3> ncclProfiler_v3 = {
    "muster", init_v3, start_event<EventV3>, stop_event, record_event_state, finalize};
const Profiler<InitV4, EventV4> ncclProfiler_v4 = {
    "muster", init_v4, start_event<EventV4>, stop_event, record_event_state, finalize};
const Profiler<InitV5, EventV5> ncclProfiler_v5 = {
    "muster", init_v5, start_event<EventV5>, stop_event, record_event_state, finalize};
#pragma GCC visibility pop
}

}  // namespace muster::nccl

#include "worker/gpus/gpu_watch.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/escape.h"
#include "worker/gpus/topology.h"

namespace muster::worker {
namespace {

// Interval at which the waiting thread checks for requests. An Xid ends the wait at once.
constexpr unsigned kEventWaitMs = 100;
constexpr Duration kPause = std::chrono::milliseconds(kEventWaitMs);
// The maximum number of events read before a measurement, because a failing GPU may report events
// without end.
constexpr int kEventsAtOnce = 64;
constexpr Duration kFarewell = std::chrono::seconds(1);  // a measurement takes milliseconds

std::string text_from(const std::array<char, 96>& bytes) {
  const auto* const end = std::find(bytes.begin(), bytes.end(), '\0');
  return printable(std::string(bytes.begin(), end), kGpuTextBytesMax);
}

std::string gpu_name(const Gpu& gpu) { return absl::StrCat("GPU ", gpu.index); }

// Returns "GPU 3 is lost (Xid 79: fallen off the bus)".
std::string xid_text(const Gpu& gpu, uint64_t xid) {
  const XidRule rule = rule_of_xid(xid);
  const std::string what =
      absl::StrCat("Xid ", xid, rule.meaning.empty() ? "" : ": ",
                   absl::string_view(rule.meaning.data(), rule.meaning.size()));
  constexpr uint64_t kFallenOffTheBus = 79;
  return xid == kFallenOffTheBus ? absl::StrCat(gpu_name(gpu), " is lost (", what, ")")
                                 : absl::StrCat(gpu_name(gpu), " reports ", what);
}

}  // namespace

struct GpuWatch::Shared {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  GpuReport report;
  // number of measurements requested by callers, in the count of GpuReport::samples
  uint64_t wanted = 0;
  bool is_measuring = false;
  bool stop = false;
  bool ended = false;
};

// The watch thread's own state. Never calls NVML with the lock held.
class GpuWatch::Loop {
 public:
  Loop(std::shared_ptr<Shared> shared, GpuWatchOptions options)
      : shared_(std::move(shared)), options_(std::move(options)) {}

  void run() {
    find();
    Instant due = monotonic_now();
    while (!devices_.empty() && !is_stopped()) {
      const Instant now = monotonic_now();
      if (now >= due || is_wanted()) {
        for (int i = 0; i < kEventsAtOnce && take_event(0);) ++i;
        measure();
        due = now + options_.interval;
      }
      if (events_ == nullptr) {
        pause();
      } else {
        take_event(kEventWaitMs);
      }
    }
    if (events_ != nullptr) api_->free_events(events_);
    if (is_initialised_) api_->shutdown();
    const std::lock_guard lock(shared_->mutex);
    shared_->ended = true;
    shared_->changed.notify_all();
  }

 private:
  void find() {
    std::string none_because;
    std::vector<GpuState> gpus;
    if (const absl::Status status = open(gpus); !status.ok()) {
      gpus.clear();
      none_because = std::string(status.message());
    } else if (gpus.empty()) {
      none_because = "the driver reports none";
    }
    const bool had_some = !gpus.empty();
    std::map<std::string, std::string> all;
    for (const GpuState& gpu : gpus) all[gpu.gpu.uuid] = gpu.gpu.name;
    gpus = visible_gpus(std::move(gpus), options_.visible);
    if (had_some && gpus.empty())
      none_because = absl::StrCat(
          "CUDA_VISIBLE_DEVICES=", printable(options_.visible.value_or(""), kGpuTextBytesMax),
          " leaves none of this node's");
    for (const GpuState& gpu : gpus) devices_.push_back(handles_.at(gpu.gpu.uuid));
    listen();
    const std::lock_guard lock(shared_->mutex);
    shared_->report.all = std::move(all);
    shared_->report.gpus = std::move(gpus);
    shared_->report.none_because = std::move(none_because);
    shared_->report.driver = driver_;
    shared_->report.missing = std::move(missing_);
    shared_->report.is_listed = true;
    shared_->report.answered = monotonic_now();
    shared_->changed.notify_all();
  }

  absl::Status open(std::vector<GpuState>& gpus) {
    auto api = open_nvml(options_.library);
    if (!api.ok()) return api.status();
    api_ = *std::move(api);
    if (auto status = nvml_status(*api_, api_->init()); !status.ok()) return status;
    is_initialised_ = true;
    std::array<char, 96> text{};
    if (api_->driver_version != nullptr && api_->driver_version(text.data(), text.size()) == 0)
      driver_ = text_from(text);
    unsigned count = 0;
    if (auto status = nvml_status(*api_, api_->count(&count)); !status.ok()) return status;
    const Topology topology(options_.topology_xml);
    for (unsigned i = 0; i < std::min<unsigned>(count, kGpusPerNodeMax); ++i)
      if (auto gpu = open_device(i, topology)) gpus.push_back(*std::move(gpu));
    return absl::OkStatus();
  }

  // GPUs that share the host's memory do not support this value.
  static bool supports_memory(NvmlResult result) {
    return result == kNvmlSuccess || result == kNvmlNotSupported;
  }

  // A GPU that does not answer cannot be assigned.
  std::optional<GpuState> open_device(unsigned index, const Topology& topology) {
    NvmlDevice device = nullptr;
    std::array<char, 96> uuid{}, name{};
    NvmlMemory memory{};
    // The count includes GPUs that a control group denies to this process.
    const NvmlResult opened = api_->by_index(index, &device);
    if (opened == kNvmlNoPermission) {
      answered();
      return std::nullopt;
    }
    const bool answers = opened == kNvmlSuccess &&
                         api_->uuid(device, uuid.data(), uuid.size()) == kNvmlSuccess &&
                         api_->name(device, name.data(), name.size()) == kNvmlSuccess &&
                         supports_memory(api_->memory(device, &memory));
    answered();
    if (!answers) {
      missing_.push_back(
          absl::StrCat("GPU ", index, " does not answer, though the driver counts it"));
      return std::nullopt;
    }
    GpuState state;
    state.gpu = {.index = static_cast<int32_t>(index),
                 .uuid = text_from(uuid),
                 .name = text_from(name),
                 .memory_bytes = memory.total};
    NvmlPci pci;
    if (api_->pci(device, &pci) == kNvmlSuccess) {
      state.pci_address = absl::StrFormat("%04x:%02x:%02x", pci.domain, pci.bus, pci.device);
      DevicePlace place = topology.place_of_pci(pci.domain, pci.bus, pci.device);
      state.gpu.numa_node = place.numa_node;
      state.cpus = std::move(place.cpus);
    }
    handles_[state.gpu.uuid] = device;
    return state;
  }

  // Some drivers, and containers, support no events: then only measurements reveal a lost GPU.
  void listen() {
    if (devices_.empty() || api_->create_events == nullptr ||
        api_->create_events(&events_) != kNvmlSuccess) {
      events_ = nullptr;
      return;
    }
    bool listens = false;
    for (const NvmlDevice device : devices_)
      listens |= api_->register_events(device, kNvmlEventXid, events_) == kNvmlSuccess;
    if (listens) return;
    api_->free_events(events_);
    events_ = nullptr;
  }

  // Returns false if there was no event.
  bool take_event(unsigned wait_ms) {
    if (events_ == nullptr) return false;
    NvmlEvent event;
    const NvmlResult result = api_->wait_event(events_, &event, wait_ms);
    answered();
    if (result != kNvmlSuccess) {
      if (result != kNvmlTimeout && wait_ms > 0)
        pause();  // the next wait would return at once, too
      return false;
    }
    const auto device = std::ranges::find(devices_, event.device);
    if (device != devices_.end() && (event.type & kNvmlEventXid) != 0)
      take_xid(static_cast<size_t>(device - devices_.begin()), event.data);
    return true;
  }

  void pause() {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, kPause, [&] { return shared_->stop; });
  }

  void take_xid(size_t index, uint64_t xid) {
    const std::lock_guard lock(shared_->mutex);
    GpuState& state = shared_->report.gpus[index];
    ++state.xids[xid];
    add(index, rule_of_xid(xid).blame, xid_text(state.gpu, xid));
  }

  void measure() {
    set_measuring();
    for (size_t i = 0; i < devices_.size(); ++i) {
      GpuHealth health;
      const bool is_lost = !read(devices_[i], health);
      const std::lock_guard lock(shared_->mutex);
      GpuState& state = shared_->report.gpus[i];
      judge(i, state, health, is_lost);
      if (!is_lost) state.health = health;
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->report.answered = monotonic_now();
    ++shared_->report.samples;
    shared_->is_measuring = false;
    shared_->changed.notify_all();
  }

  // Requires the lock.
  void judge(size_t index, const GpuState& before, const GpuHealth& now, bool is_lost) {
    const std::string name = gpu_name(before.gpu);
    // A GPU that is lost or needs a reset has usually reported an Xid already.
    if (is_lost && before.problem.empty())
      add(index, GpuBlame::kNode, absl::StrCat(name, " is lost (NVML no longer finds it)"));
    if (is_lost) return;
    const uint64_t had = before.health.ecc_uncorrected.value_or(now.ecc_uncorrected.value_or(0));
    if (now.ecc_uncorrected.value_or(0) > had)
      add(index, GpuBlame::kGpu,
          absl::StrCat(name, " has ", *now.ecc_uncorrected - had,
                       " new memory errors that ECC could not correct"));
    if (now.row_remap_failed.value_or(false) && !before.health.row_remap_failed.value_or(false))
      add(index, GpuBlame::kNode, absl::StrCat(name, " has bad memory that could not be remapped"));
  }

  // Requires the lock.
  void add(size_t index, GpuBlame blame, std::string text) {
    GpuReport& report = shared_->report;
    GpuState& state = report.gpus[index];
    if (blame == GpuBlame::kNode && state.problem.empty()) state.problem = text;
    if (report.events.size() == kGpuEventsMax) report.events.erase(report.events.begin());
    report.events.push_back(
        {.at = monotonic_now(), .gpu = index, .blame = blame, .text = std::move(text)});
    ++report.changes;
    shared_->changed.notify_all();
  }

  // Returns false if the GPU is gone, or needs a reset.
  bool read(NvmlDevice device, GpuHealth& health) const {
    bool is_lost = false;
    const auto query = [&](auto function, auto... arguments) {
      if (function == nullptr || is_lost) return false;
      const NvmlResult result = function(device, arguments...);
      is_lost = result == kNvmlGpuIsLost || result == kNvmlResetRequired;
      return result == kNvmlSuccess;
    };
    NvmlMemory memory;
    NvmlUtilization part;
    unsigned number = 0, corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    unsigned long long large = 0;
    if (query(api_->memory, &memory)) health.memory_used_bytes = memory.used;
    if (query(api_->utilization, &part)) health.utilization = part.gpu / 100.0;
    if (query(api_->temperature, kNvmlTemperatureGpu, &number)) health.temperature_celsius = number;
    if (query(api_->power, &number)) health.power_watts = number / 1e3;
    if (query(api_->clock, kNvmlClockSm, &number)) health.sm_clock_hertz = number * 1e6;
    if (query(api_->clock, kNvmlClockMem, &number)) health.memory_clock_hertz = number * 1e6;
    if (query(api_->throttle_reasons, &large)) health.throttle_reasons = large;
    if (query(api_->ecc_errors, kNvmlCorrected, kNvmlVolatile, &large))
      health.ecc_corrected = large;
    if (query(api_->ecc_errors, kNvmlUncorrected, kNvmlVolatile, &large))
      health.ecc_uncorrected = large;
    if (query(api_->remapped_rows, &corrected, &uncorrected, &pending, &failed))
      health.row_remap_failed = failed != 0;
    return !is_lost;
  }

  void set_measuring() {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_measuring = true;
  }

  void answered() {
    const std::lock_guard lock(shared_->mutex);
    shared_->report.answered = monotonic_now();
  }

  bool is_stopped() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->stop;
  }

  bool is_wanted() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->wanted > shared_->report.samples;
  }

  const std::shared_ptr<Shared> shared_;
  const GpuWatchOptions options_;
  std::shared_ptr<const NvmlApi> api_;
  bool is_initialised_ = false;
  std::string driver_;
  std::vector<std::string> missing_;
  std::map<std::string, NvmlDevice> handles_;  // by UUID
  std::vector<NvmlDevice> devices_;            // as GpuReport::gpus
  NvmlEventSet events_ = nullptr;
};

GpuWatch::GpuWatch(GpuWatchOptions options) : shared_(std::make_shared<Shared>()) {
  shared_->report.answered = monotonic_now();
  auto loop = std::make_unique<Loop>(shared_, std::move(options));
  const auto run = [](void* argument) -> void* {
    std::unique_ptr<Loop>(static_cast<Loop*>(argument))->run();
    return nullptr;
  };
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run, loop.get()) == 0) {
    (void)loop.release();
    thread_ = thread;
  } else {
    shared_->report.is_listed = true;
    shared_->report.none_because = "the thread that searches for them could not start";
  }
}

GpuWatch::~GpuWatch() {
  if (!thread_) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, kFarewell, [&] { return shared_->ended; });
  lock.unlock();
  // A driver that hangs blocks the thread, which is then not joined.
  if (ended) {
    pthread_join(*thread_, nullptr);
  } else {
    pthread_detach(*thread_);
  }
}

GpuReport GpuWatch::wait_until_found(Duration at_most) const {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, at_most, [&] { return shared_->report.is_listed; });
  return shared_->report;
}

GpuReport GpuWatch::report() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->report;
}

uint64_t GpuWatch::changes() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->report.changes;
}

GpuReport GpuWatch::measure(Duration at_most) const {
  const Instant until = monotonic_now() + at_most;
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, at_most, [&] { return shared_->report.is_listed; });
  if (shared_->report.gpus.empty()) return shared_->report;
  // The running measurement may have read a GPU before the event of the caller's request.
  const uint64_t wanted = shared_->report.samples + (shared_->is_measuring ? 2 : 1);
  shared_->wanted = std::max(shared_->wanted, wanted);
  shared_->changed.wait_for(lock, until - monotonic_now(),
                            [&] { return shared_->report.samples >= wanted; });
  return shared_->report;
}

}  // namespace muster::worker

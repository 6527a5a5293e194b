// A fake NVML for the worker, with GPUs from the file that MUSTER_FAKE_NVML names. Each call reads
// the file again:
//
//   driver 550.54.15
//   init 18      nvmlInit_v2 returns this; other calls return it until nvmlInit_v2 has returned 0
//   gpu bus=16 temperature=65 power=300000 sm=1980 mem=2619 throttle=64 corrected=2
//       uncorrected=1 remap_failed=1 used=1000 lost=1 silent=1 forbidden=1     (all on one line)
//   xid 1 79     an event of GPU 1; each set of events receives each such line once, in order
//   no_events    events are not supported
//   hang         every call blocks while the file has this line
//
// GPUs are numbered by their lines. `lost` ones return NVML_ERROR_GPU_IS_LOST, `silent` ones cannot
// be opened, and `forbidden` ones not by this process. Units are NVML's: bytes, milliwatts, MHz.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalid = 2, kNotSupported = 3, kNoPermission = 4,
              kTimeout = 10, kLost = 15, kUnknown = 999;

struct State {
  std::string driver = "550.54.15";
  int init = kSuccess;
  bool hangs = false;
  bool no_events = false;
  std::vector<std::map<std::string, uint64_t>> gpus;
  std::vector<std::pair<size_t, uint64_t>> xids;
};

State read_file() {
  State state;
  const char* path = std::getenv("MUSTER_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "driver") words >> state.driver;
    if (kind == "init") words >> state.init;
    if (kind == "hang") state.hangs = true;
    if (kind == "no_events") state.no_events = true;
    if (kind == "xid") {
      size_t gpu = 0;
      uint64_t xid = 0;
      words >> gpu >> xid;
      state.xids.emplace_back(gpu, xid);
    }
    if (kind != "gpu") continue;
    std::map<std::string, uint64_t>& values = state.gpus.emplace_back();
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      values[word.substr(0, equals)] = std::strtoull(word.c_str() + equals + 1, nullptr, 0);
    }
  }
  return state;
}

State current() {
  State state = read_file();
  while (state.hangs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    state = read_file();
  }
  return state;
}

void* handle_of(size_t index) { return reinterpret_cast<void*>(index + 1); }
size_t index_of(void* device) { return reinterpret_cast<size_t>(device) - 1; }

// Reads a figure of a GPU; a figure that is not on its line is not supported.
template <class T>
int figure(void* device, const char* name, T* value) {
  const State state = current();
  if (state.init != kSuccess) return kUninitialized;
  const size_t index = index_of(device);
  if (index >= state.gpus.size()) return kInvalid;
  const auto& values = state.gpus[index];
  if (values.contains("lost")) return kLost;
  const auto found = values.find(name);
  if (found == values.end()) return kNotSupported;
  *value = static_cast<T>(found->second);
  return kSuccess;
}

int copy(const std::string& from, char* text, unsigned bytes) {
  std::snprintf(text, bytes, "%s", from.c_str());
  return kSuccess;
}

struct EventSet {
  size_t delivered = 0;
};

}  // namespace

extern "C" {

struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlUtilization_t {
  unsigned gpu, memory;
};
struct nvmlPciInfo_t {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
struct nvmlEventData_t {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2() { return current().init; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) {
  switch (result) {
    case 9:
      return "Driver Not Loaded";
    case kLost:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return copy(current().driver, text, bytes);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(current().gpus.size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  const State state = current();
  if (index >= state.gpus.size()) return kInvalid;
  if (state.gpus[index].contains("silent")) return kUnknown;
  if (state.gpus[index].contains("forbidden")) return kNoPermission;
  *device = handle_of(index);
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  std::array<char, 64> uuid{};
  std::snprintf(uuid.data(), uuid.size(), "GPU-%08zu-fa4e-0000-0000-000000000000",
                index_of(device));
  return copy(uuid.data(), text, bytes);
}
int nvmlDeviceGetName(void*, char* text, unsigned bytes) {
  return copy("NVIDIA Fake 80GB", text, bytes);
}
int nvmlDeviceGetMemoryInfo(void* device, nvmlMemory_t* memory) {
  *memory = {80ULL << 30, 80ULL << 30, 0};
  const int result = figure(device, "used", &memory->used);
  return result == kNotSupported ? kSuccess : result;
}
int nvmlDeviceGetPciInfo_v3(void* device, nvmlPciInfo_t* pci) {
  std::memset(pci, 0, sizeof(*pci));
  return figure(device, "bus", &pci->bus);
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  return figure(device, "temperature", celsius);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return figure(device, "power", milliwatts);
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* megahertz) {
  return figure(device, type == 1 ? "sm" : "mem", megahertz);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  return figure(device, "throttle", reasons);
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int, unsigned long long* count) {
  return figure(device, type == 0 ? "corrected" : "uncorrected", count);
}
int nvmlDeviceGetUtilizationRates(void* device, nvmlUtilization_t* part) {
  part->memory = 0;
  return figure(device, "utilization", &part->gpu);
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = *pending = 0;
  return figure(device, "remap_failed", failed);
}
int nvmlEventSetCreate(void** set) {
  *set = new EventSet;
  return kSuccess;
}
int nvmlEventSetFree(void* set) {
  delete static_cast<EventSet*>(set);
  return kSuccess;
}
int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) {
  return current().no_events ? kNotSupported : kSuccess;
}
int nvmlEventSetWait_v2(void* set, nvmlEventData_t* event, unsigned milliseconds) {
  EventSet& events = *static_cast<EventSet*>(set);
  for (unsigned waited = 0;; waited += 5) {
    const State state = current();
    if (events.delivered < state.xids.size()) {
      const auto& [gpu, xid] = state.xids[events.delivered++];
      *event = {handle_of(gpu), 8, xid, 0xffffffff, 0xffffffff};
      return kSuccess;
    }
    if (waited >= milliseconds) return kTimeout;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // extern "C"

// The NVML functions that the worker uses. NVML (NVIDIA's management library) comes with the driver
// and is loaded at run time. Constants and layouts are those of NVIDIA's header (nvml.h), which are
// stable across NVML's versions. Each function may block for seconds, or forever, on a faulty GPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::worker {

using NvmlDevice = void*;    // nvmlDevice_t
using NvmlEventSet = void*;  // nvmlEventSet_t
using NvmlResult = int;      // nvmlReturn_t
constexpr NvmlResult kNvmlSuccess = 0;
constexpr NvmlResult kNvmlNotSupported = 3;
constexpr NvmlResult kNvmlNoPermission = 4;
constexpr NvmlResult kNvmlDriverNotLoaded = 9;
constexpr NvmlResult kNvmlTimeout = 10;
constexpr NvmlResult kNvmlGpuIsLost = 15;
constexpr NvmlResult kNvmlResetRequired = 16;
// library and kernel module have different versions
constexpr NvmlResult kNvmlVersionMismatch = 18;

constexpr int kNvmlTemperatureGpu = 0;                   // nvmlTemperatureSensors_t
constexpr int kNvmlClockSm = 1, kNvmlClockMem = 2;       // nvmlClockType_t
constexpr int kNvmlCorrected = 0, kNvmlUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr int kNvmlVolatile = 0;  // nvmlEccCounterType_t: since the driver was loaded
constexpr uint64_t kNvmlEventXid = 0x8;

// Bits of nvmlDeviceGetCurrentClocksThrottleReasons.
constexpr uint64_t kThrottlePowerCap = 0x4, kThrottleHardware = 0x8,
                   kThrottleThermalSoftware = 0x20, kThrottleThermalHardware = 0x40,
                   kThrottlePowerBrake = 0x80;

// nvmlMemory_t, in bytes
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};
// nvmlUtilization_t, in percent of time
struct NvmlUtilization {
  unsigned gpu = 0, memory = 0;
};
// nvmlPciInfo_t
struct NvmlPci {
  std::array<char, 16> bus_id_legacy{};
  unsigned domain = 0, bus = 0, device = 0, device_id = 0, subsystem_id = 0;
  std::array<char, 32> bus_id{};
};
// nvmlEventData_t
struct NvmlEvent {
  NvmlDevice device = nullptr;
  unsigned long long type = 0, data = 0;  // data: the Xid
  unsigned gpu_instance = 0, compute_instance = 0;
};

// Pointers to the library's functions, with NVML's signatures.
struct NvmlApi {
  NvmlResult (*init)() = nullptr;
  NvmlResult (*shutdown)() = nullptr;
  const char* (*error_text)(NvmlResult result) = nullptr;
  NvmlResult (*count)(unsigned* count) = nullptr;
  NvmlResult (*by_index)(unsigned index, NvmlDevice* device) = nullptr;
  NvmlResult (*uuid)(NvmlDevice device, char* text, unsigned bytes) = nullptr;
  NvmlResult (*name)(NvmlDevice device, char* text, unsigned bytes) = nullptr;
  NvmlResult (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;
  NvmlResult (*pci)(NvmlDevice device, NvmlPci* pci) = nullptr;
  // The functions below are null if the library lacks them; the values that they return are then
  // unknown.
  NvmlResult (*driver_version)(char* text, unsigned bytes) = nullptr;
  NvmlResult (*temperature)(NvmlDevice device, int sensor, unsigned* celsius) = nullptr;
  NvmlResult (*power)(NvmlDevice device, unsigned* milliwatts) = nullptr;
  NvmlResult (*clock)(NvmlDevice device, int type, unsigned* megahertz) = nullptr;
  NvmlResult (*throttle_reasons)(NvmlDevice device, unsigned long long* reasons) = nullptr;
  NvmlResult (*ecc_errors)(NvmlDevice device, int type, int counter,
                           unsigned long long* count) = nullptr;
  NvmlResult (*utilization)(NvmlDevice device, NvmlUtilization* part) = nullptr;
  NvmlResult (*remapped_rows)(NvmlDevice device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) = nullptr;
  NvmlResult (*create_events)(NvmlEventSet* set) = nullptr;
  NvmlResult (*register_events)(NvmlDevice device, unsigned long long types,
                                NvmlEventSet set) = nullptr;
  NvmlResult (*wait_event)(NvmlEventSet set, NvmlEvent* event, unsigned milliseconds) = nullptr;
  NvmlResult (*free_events)(NvmlEventSet set) = nullptr;
};

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// Loads the library `name`, which then stays loaded. Returns NotFound if the loader finds no such
// library, and FailedPrecondition if the library lacks the functions that list GPUs.
absl::StatusOr<std::shared_ptr<const NvmlApi>> open_nvml(const std::string& name = kNvmlLibrary);

// Translates an unsuccessful result into an error message for the node's operators. Requires that
// `result` is not kNvmlSuccess.
absl::Status nvml_status(const NvmlApi& api, NvmlResult result);

}  // namespace muster::worker

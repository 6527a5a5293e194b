#include "worker/gpus/nvml_api.h"

#include <dlfcn.h>

#include <type_traits>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "common/text/escape.h"

namespace muster::worker {

absl::StatusOr<std::shared_ptr<const NvmlApi>> open_nvml(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(
        absl::StrCat("no NVIDIA driver is installed here (", printable(dlerror(), 256), ")"));
  auto api = std::make_shared<NvmlApi>();
  std::string missing;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    return function != nullptr;
  };
  const auto need = [&](auto& function, const char* symbol) {
    if (!find(function, symbol) && missing.empty()) missing = symbol;
  };
  need(api->init, "nvmlInit_v2");
  need(api->shutdown, "nvmlShutdown");
  need(api->error_text, "nvmlErrorString");
  need(api->count, "nvmlDeviceGetCount_v2");
  need(api->by_index, "nvmlDeviceGetHandleByIndex_v2");
  need(api->uuid, "nvmlDeviceGetUUID");
  need(api->name, "nvmlDeviceGetName");
  need(api->memory, "nvmlDeviceGetMemoryInfo");
  need(api->pci, "nvmlDeviceGetPciInfo_v3");
  if (!missing.empty())
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has no ", missing, ": update the NVIDIA driver"));
  find(api->driver_version, "nvmlSystemGetDriverVersion");
  find(api->temperature, "nvmlDeviceGetTemperature");
  find(api->power, "nvmlDeviceGetPowerUsage");
  find(api->clock, "nvmlDeviceGetClockInfo");
  // The newer name comes second: all current drivers still have the first.
  if (!find(api->throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"))
    find(api->throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  find(api->ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(api->utilization, "nvmlDeviceGetUtilizationRates");
  find(api->remapped_rows, "nvmlDeviceGetRemappedRows");
  const bool has_events = find(api->create_events, "nvmlEventSetCreate") &&
                          find(api->register_events, "nvmlDeviceRegisterEvents") &&
                          find(api->wait_event, "nvmlEventSetWait_v2") &&
                          find(api->free_events, "nvmlEventSetFree");
  if (!has_events) api->create_events = nullptr;
  return std::shared_ptr<const NvmlApi>(std::move(api));
}

absl::Status nvml_status(const NvmlApi& api, NvmlResult result) {
  if (result == kNvmlSuccess) return absl::OkStatus();
  const char* text = api.error_text(result);
  const std::string reported =
      absl::StrCat("NVML reports ", result, text == nullptr ? "" : absl::StrCat(", ", text));
  switch (result) {
    case kNvmlDriverNotLoaded:
      return absl::UnavailableError(absl::StrCat("the NVIDIA driver is not loaded (", reported,
                                                 "): load its module, or check dmesg"));
    case kNvmlVersionMismatch:
      return absl::FailedPreconditionError(
          absl::StrCat("the NVIDIA driver's library and its kernel module are of different "
                       "versions (",
                       reported, "): reboot the node, as after each update of the driver"));
    case kNvmlNoPermission:
      return absl::PermissionDeniedError(absl::StrCat("access to the NVIDIA driver is denied (",
                                                      reported,
                                                      "): give this user access to /dev/nvidia*"));
    case kNvmlGpuIsLost:
      return absl::UnavailableError(absl::StrCat("the GPU is lost (", reported, ")"));
    default:
      return absl::UnavailableError(reported);
  }
}

}  // namespace muster::worker

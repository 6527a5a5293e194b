#include "coordinator/shell/storage/patient_storage.h"

#include <chrono>
#include <string>

#include <spdlog/spdlog.h>

namespace muster::coordinator {
namespace {

constexpr Duration kFullDiskRetry = std::chrono::seconds(1);

}  // namespace

absl::Status PatientStorage::commit(const StorageBatch& batch,
                                    absl::FunctionRef<bool(Duration)> stopped) {
  absl::Status status = storage_.commit(batch);
  if (!absl::IsResourceExhausted(status)) return status;
  is_waiting_ = true;
  spdlog::error(
      "{}; until there is space nothing is decided or answered, and running ranks continue",
      std::string(status.message()));
  while (absl::IsResourceExhausted(status) && !stopped(kFullDiskRetry))
    status = storage_.commit(batch);
  if (absl::IsResourceExhausted(status) && reserve_ != nullptr && reserve_->release()) {
    spdlog::warn("the last decisions are stored in reserved space");
    return storage_.commit(batch);
  }
  if (!status.ok()) return status;
  spdlog::warn("the state is stored again");
  is_waiting_ = false;
  return status;
}

absl::Status PatientStorage::refusal() {
  return absl::UnavailableError(
      "the disk of the coordinator's state is full: nothing is decided or answered until there is "
      "space, and running ranks continue");
}

}  // namespace muster::coordinator

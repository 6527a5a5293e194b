#include "trainer_core/loop/plan_comparison.h"

#include <sys/resource.h>

#include <algorithm>

#include <absl/strings/str_format.h>

#include "trainer_core/base/units.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/startup/device_reserve.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/node_memory.h"

namespace muster::trainer {
namespace {

double percent_over(double measured, double planned) { return 100 * (measured / planned - 1); }

}  // namespace

size_t planned_memory_bytes(const TrainConfig& config, const RankModel& rank_model) {
  const MemoryPlan& plan = rank_model.plan().memory();
  const Backend& backend = rank_model.backend();
  if (backend.memory().is_host()) return plan.total_bytes() + kLibraryBytes;
  DeviceRoom room{.device = backend.description(),
                  .beside = backend_reserves(backend.own_bytes()),
                  .nccl = open_nccl().ok()};
  room.beside.push_back(kKernelCode);
  return plan.device_bytes() + sum_of(beside_plan(config, room));
}

size_t used_memory_bytes(const Backend* backend) {
  if (backend != nullptr && !backend->memory().is_host())
    return backend->total_bytes() - std::min(backend->free_bytes(), backend->total_bytes());
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  constexpr size_t kKiB = 1024;
  return static_cast<size_t>(usage.ru_maxrss) * kKiB;
}

void PlanComparison::add(const StepRecord& record) {
  if (!has_first_) {
    has_first_ = true;
    return;
  }
  ++steps_;
  seconds_ += record.seconds;
  communication_ += record.collective_wait_seconds;
  data_ += record.data_wait_seconds;
  checkpoint_ += record.checkpoint_stall_seconds;
}

std::string PlanComparison::time_line() const {
  const double planned = config_.planned_step_seconds;
  if (planned <= 0 || steps_ == 0) return "";
  const double steps = static_cast<double>(steps_);
  const double measured = seconds_ / steps, communication = communication_ / steps,
               data = data_ / steps;
  const double computation = measured - communication - data;
  const double planned_waits = config_.planned_communication_seconds + config_.planned_data_seconds;
  std::string line = absl::StrFormat(
      "summary: planned step %.4g s, measured %.4g s (%+.1f%%): computation %+.3g s, communication "
      "%+.3g s, data %+.3g s; checkpoints stall %.3g s per step",
      planned, measured, percent_over(measured, planned), computation - (planned - planned_waits),
      communication - config_.planned_communication_seconds, data - config_.planned_data_seconds,
      checkpoint_ / steps);
  if (config_.planned_checkpoint_seconds > 0)
    absl::StrAppendFormat(&line, ", planned %.3g s", config_.planned_checkpoint_seconds);
  return line;
}

std::string PlanComparison::memory_line(size_t planned, size_t measured) {
  return absl::StrFormat("summary: planned memory %.1f MiB, measured %.1f MiB (%+.1f%%)",
                         static_cast<double>(planned) / kMiB, static_cast<double>(measured) / kMiB,
                         percent_over(static_cast<double>(measured), static_cast<double>(planned)));
}

}  // namespace muster::trainer

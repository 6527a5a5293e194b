// Compares a run with its plan: the time of its steps with the prediction that the config has, and
// the memory of this rank with that of its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer_core/base/train_config.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Returns the memory that a rank needs by its plan, with the reserves beside it: on the device of
// its backend or, on the CPU, of its process.
size_t planned_memory_bytes(const TrainConfig& config, const RankModel& rank_model);

// Returns the memory in use: on a device all of it, at the time of the call; on the CPU the peak of
// this process.
size_t used_memory_bytes(const Backend* backend);

// The steps of a run. Not thread-safe.
class PlanComparison {
 public:
  // `config` must outlive this object.
  explicit PlanComparison(const TrainConfig& config) : config_(config) {}

  // Adds a step. The first is not counted, because it includes the warm-up.
  void add(const StepRecord& record);
  // Returns "summary: planned step 0.498 s, measured 0.512 s (+2.8%): computation +0.01 s,
  // communication +0.004 s, data +0 s; checkpoints stall 0.002 s per step, planned 0.001 s". The
  // last clause is there if the plan has stalls. Empty without a planned time or with less than two
  // steps.
  std::string time_line() const;
  // Returns "summary: planned memory 126908.2 MiB, measured 126802.0 MiB (-0.1%)".
  static std::string memory_line(size_t planned, size_t measured);

 private:
  const TrainConfig& config_;
  bool has_first_ = false;
  int64_t steps_ = 0;
  // Sums over all steps except the first.
  double seconds_ = 0, communication_ = 0, data_ = 0, checkpoint_ = 0;
};

}  // namespace muster::trainer

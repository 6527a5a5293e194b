// The figures by which users of the recipes compare runs: throughput of all devices, utilisation by
// the recipes' formula, days to 1T tokens, and the wall time of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/report/device_peaks.h"
#include "trainer_core/report/flops.h"

namespace muster::trainer {

struct Peaks {
  std::optional<DataSheetPeak> data_sheet = {};
  double measured_tflops = 0;  // 0: unknown

  // The denominator of the MFU that the progress page and metrics have; 0: unknown.
  double tflops() const { return data_sheet ? data_sheet->tflops : measured_tflops; }
};

// Model FLOPs utilisation, (batch * model FLOPs) / (step time * devices * peak). The four values
// are at most 1; 0: that peak is unknown.
struct Utilisation {
  double data_sheet = 0;
  double data_sheet_causal = 0;  // counts half of the attention's FLOPs
  double measured = 0;
  double measured_causal = 0;
};

// The figures of a step of `seconds`, or of the mean of several.
struct Throughput {
  double seconds = 0;
  double tokens_per_second = 0;  // of all devices
  double sequences_per_second = 0;
  double tflops_per_second = 0;  // per device
  Utilisation mfu;
  double days_to_1t_tokens = 0;
};

// Not thread-safe. `config` outlives it.
class RunFigures {
 public:
  // `ranks`: the devices of the run, of which each does `tokens` per step.
  RunFigures(const TrainConfig& config, int32_t ranks)
      : config_(config), ranks_(ranks), tflops_(step_tflops(config)) {}

  void set_peaks(Peaks peaks) { peaks_ = std::move(peaks); }
  const Peaks& peaks() const { return peaks_; }

  // Adds a completed step of this process.
  void add(int64_t step, double seconds, double tokens_per_device);
  Throughput of(double seconds, double tokens_per_device) const;
  // The mean of the steps after the first, which also warms up.
  Throughput mean() const;
  // The wall time of the whole run at the mean pace, in seconds; 0: no step is completed.
  double estimated_run_seconds() const;

  // "estimated wall time of the run: 3h 02m (300 steps of 36.4 s)"; "" unless the step that was
  // added last is the one after which it is printed, and for a run of less than a minute.
  std::string estimate_line() const;
  // The lines of the summary; none without a step.
  std::vector<std::string> summary() const;

 private:
  const TrainConfig& config_;
  const int32_t ranks_;
  const StepTflops tflops_;
  Peaks peaks_;
  int64_t steps_ = 0;  // of this process
  int64_t first_step_ = 0;
  double first_seconds_ = 0;
  double seconds_ = 0;  // without the first
  double last_seconds_ = 0;
  double tokens_ = 0;  // of a device in the last step
};

}  // namespace muster::trainer

// The figures by which users of training recipes compare runs: the throughput of all devices, the
// utilisation by the recipes' formula, the days to train on 1T tokens, and the wall time of the
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time/time.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/report/device_peaks.h"
#include "trainer_core/report/flops.h"

namespace muster::trainer {

// The peak throughput of a device: according to its data sheet, and as measured.
struct Peaks {
  std::optional<DataSheetPeak> data_sheet = {};
  double measured_tflops = 0;    // TFLOP/s; 0: unknown
  std::string why_unknown = {};  // the reason if measured_tflops is unknown; may be empty

  // Returns the denominator of the MFU on the progress page and in metrics, TFLOP/s; 0: unknown.
  double tflops() const { return data_sheet ? data_sheet->tflops : measured_tflops; }
};

// The model FLOPs utilisation: (batch * model FLOPs) / (step time * devices * peak), at most 1.
// There are four values, for each peak with both ways to count the FLOPs of attention; 0: the peak
// is unknown.
struct Utilisation {
  double data_sheet = 0;
  double data_sheet_causal = 0;  // counts half of attention's FLOPs
  double measured = 0;
  double measured_causal = 0;
};

// The figures of a step, or of the mean of several steps.
struct Throughput {
  double seconds = 0;               // duration of the step
  double tokens_per_second = 0;     // sum over all devices
  double sequences_per_second = 0;  // sum over all devices
  double tflops_per_second = 0;     // per device
  Utilisation mfu;
  double days_to_1t_tokens = 0;
};

// Computes the figures of a run. Not thread-safe.
class RunFigures {
 public:
  // `ranks` is the number of devices of the run. `config` must outlive this object.
  RunFigures(const TrainConfig& config, int32_t ranks)
      : config_(config), ranks_(ranks), tflops_(step_tflops(config)) {}

  void set_peaks(Peaks peaks) { peaks_ = std::move(peaks); }
  const Peaks& peaks() const { return peaks_; }

  // Adds a step that this process has completed.
  void add(int64_t step, double seconds, double tokens_per_device);
  // Returns the figures of a step.
  Throughput of(double seconds, double tokens_per_device) const;
  // Returns the figures of the mean step. The first step is not counted, because it includes the
  // warm-up, unless it is the only one.
  Throughput mean() const;
  // Returns the estimated wall time of the complete run in seconds, from the mean step; 0 if no
  // step is completed.
  double estimated_run_seconds() const;

  // Returns the line "estimated wall time of the run: 3h 02m (300 steps of 36.4 s), … left", which
  // is printed once, after a fixed number of steps. Returns an empty text after any other step, and
  // for runs of less than a minute.
  std::string estimate_line() const;
  // Returns the lines of the summary at the end of a run; none if no step is completed.
  std::vector<std::string> summary() const;

 private:
  const TrainConfig& config_;
  const int32_t ranks_;
  const StepTflops tflops_;
  Peaks peaks_;
  int64_t steps_ = 0;  // steps of this process
  int64_t first_step_ = 0;
  double first_seconds_ = 0;
  double seconds_ = 0;  // sum over all steps except the first
  double last_seconds_ = 0;
  double tokens_ = 0;  // tokens per device in the last step
};

}  // namespace muster::trainer

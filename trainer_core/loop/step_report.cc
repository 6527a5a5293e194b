#include "trainer_core/loop/step_report.h"

#include <utility>

#include "common/text/number_text.h"
#include "trainer_core/startup/cpu_contention.h"

namespace muster::trainer {

absl::Status StepReport::open() { return leader() ? metrics_.open(config_) : absl::OkStatus(); }

void StepReport::begin(const RankModel& rank_model) {
  peak_.emplace(peaks_path(), peak_key(rank_model.backend(), rank_model.plan().model.dtype,
                                       config_.allows_tf32()));
  figures_.set_peaks({.data_sheet = data_sheet_peak(rank_model.backend().description(), config_)});
  set_measured_peak(peak_->stored());
  if (!leader()) return;
  planned_bytes_ = planned_memory_bytes(config_, rank_model);
  context_.out << memory_line(rank_model.plan().memory()) << '\n'
               << parameters_line(parameter_count(rank_model.table())) << '\n'
               << trained_line(parameter_count(part_of(rank_model.table(), ParamPart::kTrained)),
                               parameter_count(rank_model.table()))
               << per_step_block(step_tflops(config_)) << pipeline_line(config_) << std::endl;
}

void StepReport::set_measured_peak(double tflops) {
  Peaks peaks = figures_.peaks();
  peaks.measured_tflops = tflops;
  peaks.why_unknown = peak_->why_unknown();
  if (peaks.why_unknown.empty()) peaks.why_unknown = "it is measured after the first step";
  figures_.set_peaks(peaks);
  context_.page.set_device_peak_tflops(peaks.tflops());
}

void StepReport::measure_peak(RankModel& rank_model) {
  if (std::exchange(peak_measured_, true)) return;
  // Other processes slow a CPU's GEMMs down, and hardly those of a device.
  ContentionWatch contention;
  const GemmWatch watch{.begin = [&] { contention.begin(); },
                        .counts = [&] { return contention.counts(); }};
  set_measured_peak(peak_->get([&] {
    const double tflops = rank_model.measure_peak_tflops(watch);
    return PeakRound{tflops, tflops > 0 ? "" : contention.disturbance()};
  }));
  restart_clock();
}

void StepReport::print(const std::vector<std::string>& sentences) {
  if (!leader()) return;
  for (const std::string& sentence : sentences) context_.out << sentence << std::endl;
}

void StepReport::nothing_to_do(int64_t completed, bool ends_early) {
  if (!leader()) return;
  context_.out << "nothing to do: " << counted(static_cast<uint64_t>(completed), "step")
               << (completed == 1 ? " is" : " are") << " completed and "
               << (ends_early ? "early_stopping_patience is exhausted"
                              : absl::StrCat("steps=", config_.steps))
               << std::endl;
}

void StepReport::restart_clock(Duration stall) {
  stall_between_steps_ += stall;
  last_step_end_ = monotonic_now();
}

void StepReport::finish(StepRecord& record, Duration stall) {
  const Instant now = monotonic_now();
  profile_.end_step();
  record.checkpoint_stall_seconds = to_seconds(stall + std::exchange(stall_between_steps_, {}));
  record.seconds = to_seconds(now - last_step_end_ - stall);
  data_wait_.add(record);
  comparison_.add(record);
  figures_.add(record.step, record.seconds, record.tokens_per_device);
  record.throughput = figures_.of(record.seconds, record.tokens_per_device);
  record.estimated_run_seconds = figures_.estimated_run_seconds();
  last_step_end_ = now;
}

void StepReport::publish(const StepRecord& record) {
  context_.page.complete_step(progress_of(record), last_step_end_);
  if (leader()) {
    if (context_.backend != nullptr)
      for (const std::string& note : context_.backend->ops().take_notes())
        context_.out << note << std::endl;
    // Users of MaxText read the line of the last step, so every step prints a line; `log_period`
    // does not apply to these lines.
    context_.out << step_line(record) << std::endl;
    if (const std::string line = figures_.estimate_line(); !line.empty())
      context_.out << line << std::endl;
    metrics_.write(record);
  }
  if (context_.on_step) context_.on_step(record);
}

void StepReport::end(int64_t completed, bool data_ends) {
  if (!leader()) return;
  if (completed < config_.steps && data_ends) {
    context_.out << "the data ends: num_epoch=" << config_.num_epoch << " gives " << completed
                 << " of " << counted(static_cast<uint64_t>(config_.steps), "step") << std::endl;
  }
  print_summary();
}

void StepReport::print_summary() {
  if (data_wait_.steps() > 0) context_.out << data_wait_.line() << std::endl;
  const std::vector<std::string> figures = figures_.summary();
  for (const std::string& line : figures) context_.out << line << std::endl;
  if (figures.empty()) return;
  if (const std::string line = comparison_.time_line(); !line.empty())
    context_.out << line << std::endl;
  context_.out << PlanComparison::memory_line(planned_bytes_,
                                              used_memory_bytes(context_.backend.get()))
               << std::endl;
}

void StepReport::stop(int64_t completed) {
  if (!leader()) return;
  context_.out << "stopped on request: " << completed << " of "
               << counted(static_cast<uint64_t>(config_.steps), "step") << " are completed"
               << std::endl;
  print_summary();
}

}  // namespace muster::trainer

#include "trainer_core/loop/step_report.h"

#include <utility>

namespace muster::trainer {

absl::Status StepReport::open() { return leader() ? metrics_.open(config_) : absl::OkStatus(); }

void StepReport::begin(const RankModel& rank_model) {
  if (!leader()) return;
  context_.out << memory_line(rank_model.plan().memory()) << '\n'
               << parameters_line(parameter_count(rank_model.table())) << '\n'
               << per_step_block(step_tflops(config_)) << pipeline_line(config_) << std::endl;
}

void StepReport::nothing_to_do(int64_t completed) {
  if (!leader()) return;
  context_.out << "nothing to do: " << completed
               << " steps are completed and steps=" << config_.steps << std::endl;
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
  last_step_end_ = now;
}

void StepReport::publish(const StepRecord& record, bool last) {
  context_.page.complete_step(progress_of(record), last_step_end_);
  if (leader()) {
    if (context_.backend != nullptr)
      for (const std::string& note : context_.backend->ops().take_notes())
        context_.out << note << std::endl;
    if (record.step % config_.log_period == 0 || last)
      context_.out << step_line(record) << std::endl;
    metrics_.write(record);
  }
  if (context_.on_step) context_.on_step(record);
}

void StepReport::end(int64_t completed, bool data_ends) {
  if (!leader()) return;
  if (completed < config_.steps && data_ends) {
    context_.out << "the data ends: num_epoch=" << config_.num_epoch << " gives " << completed
                 << " of " << config_.steps << " steps" << std::endl;
  }
  if (data_wait_.steps() > 0) context_.out << data_wait_.line() << std::endl;
}

void StepReport::stop(int64_t completed) {
  if (!leader()) return;
  context_.out << "stopped on request: " << completed << " of " << config_.steps
               << " steps are completed" << std::endl;
}

}  // namespace muster::trainer

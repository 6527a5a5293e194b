#include "trainer_core/loop/train.h"

#include <cmath>
#include <memory>
#include <mutex>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/comm/group_texts.h"
#include "trainer_core/input/sample_ranges.h"
#include "trainer_core/loop/trainer.h"
#include "trainer_core/recovery/failure.h"
#include "trainer_core/recovery/not_finite.h"
#include "trainer_core/recovery/starting_point.h"
#include "trainer_core/startup/agreement.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/planned_start.h"
#include "trainer_core/startup/remote_inputs.h"

namespace muster::trainer {
namespace {

constexpr char kSavedAfterSpike[] = "the requested checkpoint is saved once the spike is over";

}  // namespace

Trainer::Trainer(const TrainConfig& config, const TrainContext& context)
    : config_(config),
      context_(context),
      checkpoints_(config, context),
      report_(config, context),
      writes_(is_checkpoint_writer(context.groups.mesh(), context.groups.rank())),
      writers_(GroupPeers::of_writers(context.groups, kLeaveChannel, "leave")),
      guard_(config) {}

ExitCode Trainer::run() {
  const ExitCode code = loop();
  checkpoints_.finish();  // the signal thread does nothing from here on
  if (code == ExitCode::kOk) checkpoints_.remove_local();
  return code;
}

ExitCode Trainer::loop() {
  if (auto status = start(); !status.ok()) return fail("start", status, exit_code_for(status));
  if (config_.enable_checkpointing) context_.page.offer_checkpoints();
  report_.restart_clock();
  ExitCode code = config_.only_evaluates() ? evaluate(completed_ - 1) : ExitCode::kOk;
  if (misses_one()) code = after_step(completed_ - 1, /*stop=*/false);
  while (code == ExitCode::kOk && !at_end()) code = run_step(completed_);
  return code == ExitCode::kOk ? end() : code;
}

absl::Status Trainer::start() {
  enter(Phase::kLoad);
  if (auto status = check_world_size(config_, context_.groups.mesh().ranks()); !status.ok())
    return status;
  if (auto status = check_same_config(context_.groups, config_); !status.ok()) return status;
  auto device_memory = prepare_devices(config_, context_);
  if (!device_memory.ok()) return device_memory.status();
  auto inputs = with_local_data(config_, context_.err, [this] { enter(Phase::kLoad); });
  if (!inputs.ok()) return inputs.status();
  auto data = open_training_data(*inputs);
  if (!data.ok()) return data.status();
  report_.print(data->notes);
  if (auto status = open_files(*data); !status.ok()) return status;
  enter(Phase::kCompile);
  rank_model_ = std::make_unique<RankModel>(
      config_, context_.backend != nullptr ? context_.backend : cpu_backend(context_.threads),
      staging_of(config_, context_.groups.rank()), context_.groups, *std::move(device_memory));
  if (auto status = check_rank_plan(config_, context_, rank_model_->plan()); !status.ok())
    return status;
  checkpoints_.attach(*rank_model_);
  gradients_.emplace(config_, context_, *rank_model_, *data_, data->pairs_max);
  report_.begin(*rank_model_);
  if (auto status = load_parameters(); !status.ok()) return status;
  absl::Status status = check_agreement(context_.groups, data->fingerprint, *rank_model_);
  if (status.ok()) leaving_.start();
  return status;
}

absl::Status Trainer::open_files(TrainingData& data) {
  data_ = StepData::training(config_, context_.groups.rank(), data);
  auto evaluation = Evaluation::open(config_, context_, data);
  if (!evaluation.ok()) return evaluation.status();
  evaluation_ = *std::move(evaluation);
  if (auto status = checkpoints_.open(data.order); !status.ok()) return status;
  return report_.open();
}

absl::Status Trainer::load_parameters() {
  if (auto status = restore(RestoreFrom::kAnywhere); !status.ok()) return status;
  position_ = restored_samples_;
  guard_.resume(restored_spikes_, completed_);
  const bool is_done = at_end() && config_.steps > 0 && !misses_one();
  if (is_done) report_.nothing_to_do(completed_, ends_early());
  return absl::OkStatus();
}

absl::Status Trainer::restore(RestoreFrom from) {
  const auto at = restore_or_begin(config_, context_, checkpoints_, *rank_model_, from);
  if (!at.ok()) return at.status();
  completed_ = at->step;
  restored_samples_ = at->samples;
  restored_spikes_ = {};
  if (config_.enable_checkpointing) {
    const auto text =
        broadcast_text(context_.groups.world(),
                       leader() ? spike_json(checkpoints_.spikes()).dump() : "", 0, "spikes");
    if (!text.ok()) return text.status();
    restored_spikes_ = spike_state_of(nlohmann::json::parse(*text));
  }
  return evaluation_ ? evaluation_->resume(checkpoints_.evaluation()) : absl::OkStatus();
}

ExitCode Trainer::run_step(int64_t step) {
  report_.begin_step();
  const LossSum local = gradients_->compute(position_);
  if (!leaving_.expect_commit()) return ExitCode::kPreempted;
  const auto reduced = gradients_->reduce(local, checkpoints_.is_busy());
  if (!reduced.ok()) return leave_broken(absl::StrCat("step ", step), reduced.status());
  if (auto status = gradients_->data_verdict(*reduced); !status.ok())
    return leave_without_data(absl::StrCat("data of step ", step), status);
  StepRecord record = gradients_->record(step, step - guard_.state().skipped_updates, *reduced);
  const bool stop = reduced->stop_votes > 0;
  if (!std::isfinite(record.loss) || !std::isfinite(record.raw_grad_norm))
    return reject_not_finite(record, *reduced, !std::isfinite(local.loss), stop);
  if (!leaving_.begin_commit()) return ExitCode::kPreempted;
  checkpoints_.apply_votes(*reduced);
  const StepDecision decision =
      guard_.on_finite(record.loss, gradients_->common_grad_norm(*reduced));
  if (decision.spike && leader())
    context_.err << spike_line(record, position_, next_position() - 1, decision) << std::endl;
  const bool updates = decision.action == StepAction::kApply;
  if (!updates && decision.action != StepAction::kHoldUpdate)
    return reject_step(step, decision.action, stop);
  if (!updates) ++skipped_;
  record.skipped_batches = skipped_;
  const auto status = complete(record, GradientStep::divisor(*reduced), updates);
  if (!status.ok())
    return fail(absl::StrCat("update of step ", step), status, exit_code_of_step(status));
  if (stop || (at_end() && !evaluates())) (void)leaving_.claim(By::kLoop);
  leaving_.end_commit();
  // The peak is measured after the first step, because users wait for the line of this step.
  if (!stop && !at_end()) report_.measure_peak(*rank_model_);
  return after_step(step, stop);
}

absl::Status Trainer::complete(StepRecord& record, double weight, bool updates) {
  if (updates) {
    checkpoints_.before_update();
    if (auto status = update(record, weight); !status.ok()) return status;
  }
  if (config_.writes_metrics()) {
    const auto norm = gradients_->parameter_norm();
    if (!norm.ok()) return norm.status();
    record.param_norm = *norm;
  }
  record.collective_wait_seconds = gradients_->collective_wait_seconds();
  report_.finish(record, checkpoints_.take_stall());
  position_ = next_position();
  report_.publish(record);
  completed_ = record.step + 1;
  return absl::OkStatus();
}

absl::Status Trainer::update(const StepRecord& record, double weight) {
  const double clip = clip_factor(record.raw_grad_norm, config_.optimizer.clipping_threshold);
  const int64_t number = record.step - guard_.state().skipped_updates + 1;
  return rank_model_->update(
      {record.learning_rate, clip / weight, number, config_.init_weights_seed});
}

ExitCode Trainer::after_step(int64_t step, bool stop) {
  const bool is_due = evaluates();
  const ExitCode code = is_due && !stop ? evaluate(step) : ExitCode::kOk;
  if (code != ExitCode::kOk) return code;
  const bool last = at_end();
  // The next start makes up for an evaluation.
  if (stop && (!last || (is_due && config_.enable_checkpointing))) return stop_on_vote();
  const absl::Status status = save_if_due(last, stop);
  return status.ok() ? ExitCode::kOk : fail("checkpoint", status, exit_code_of_step(status));
}

absl::Status Trainer::save_if_due(bool last, bool stop) {
  const std::lock_guard lock(mutex_);
  bool due = checkpoints_.is_due(completed_, last) || (last && stop);
  // Spikes that come again and again delay a checkpoint for at most one period.
  const bool is_period = completed_ % config_.checkpoint_period == 0;
  const bool waits =
      guard_.in_spike() || (guard_.near_spike() && !(checkpoints_.is_deferred() && is_period));
  if (due && !last && waits) {
    if (leader() && checkpoints_.is_requested() && !checkpoints_.is_deferred())
      context_.err << kSavedAfterSpike << std::endl;
    checkpoints_.defer(completed_);
    due = false;
  }
  absl::Status status = checkpoints_.collect();
  if (status.ok() && due) status = save(/*continues=*/!last);
  if (due) restart_clock();
  return status;
}

ExitCode Trainer::evaluate(int64_t step) {
  const auto record = evaluation_->run(*rank_model_, step);
  if (!record.ok()) {
    const std::string at = absl::StrCat("evaluation after step ", step);
    if (!evaluation_->data_verdict().ok()) return leave_without_data(at, record.status());
    return leave_broken(at, record.status());
  }
  const std::lock_guard lock(mutex_);
  evaluation_->count(*record);
  checkpoints_.set_evaluation(evaluation_->progress());
  if (at_end()) (void)leaving_.claim(By::kLoop);
  const absl::Status status = evaluation_->publish(*record, report_.metrics());
  restart_clock();
  return status.ok() ? ExitCode::kOk : fail("eval_output", status, exit_code_of_step(status));
}

ExitCode Trainer::reject_not_finite(const StepRecord& record, const StepTail& reduced,
                                    bool own_loss_is_bad, bool stop) {
  const auto culprit = blame_not_finite(
      context_.groups.world(), *rank_model_, *data_, position_, reduced, own_loss_is_bad,
      [&](const std::string& found) { print_error(absl::StrCat("step ", record.step), found); });
  if (!culprit.ok())
    return fail("not finite", culprit.status(), exit_code_of_step(culprit.status()));
  if (!leaving_.begin_commit()) return ExitCode::kPreempted;
  checkpoints_.apply_votes(reduced);
  const StepDecision decision = guard_.on_not_finite();
  if (leader())
    context_.err << not_finite_line(record, *culprit, position_, next_position() - 1, decision)
                 << std::endl;
  return reject_step(record.step, decision.action, stop);
}

ExitCode Trainer::reject_step(int64_t step, StepAction action, bool stop) {
  if (action == StepAction::kAbort) {
    if (leaving_.claim(By::kLoop)) return ExitCode::kNotFinite;
    return await_other_exit(absl::InternalError("its loss or gradient is not finite or a spike"));
  }
  position_ = next_position();
  if (action == StepAction::kRollback) {
    const auto may_continue = roll_back(step);
    if (!may_continue.ok()) return leave_broken("rollback", may_continue.status());
    if (!*may_continue) return reject_step(step, StepAction::kAbort, stop);
  } else {
    ++skipped_;
  }
  restart_clock();
  const bool misses = misses_one();
  if (stop || (at_end() && !misses)) (void)leaving_.claim(By::kLoop);
  leaving_.end_commit();
  if (misses) return after_step(completed_ - 1, stop);
  return stop && !at_end() ? stop_on_vote() : ExitCode::kOk;
}

absl::StatusOr<bool> Trainer::roll_back(int64_t failed_step) {
  if (auto status = restore(RestoreFrom::kSharedStorage); !status.ok()) return status;
  skipped_ += static_cast<int64_t>((position_ - restored_samples_) / data_->samples_per_step());
  const bool may_continue = guard_.return_to(restored_spikes_, completed_);
  if (!may_continue && leader()) {
    context_.err << "Aborting training: no checkpoint could be saved after that of step "
                 << completed_ << ", to which the job has returned " << guard_.state().rollbacks
                 << " times (max_rollbacks is " << config_.max_rollbacks << ")" << std::endl;
  }
  if (!may_continue) return false;
  if (leader()) {
    const std::string samples = describe_samples(config_, restored_samples_, position_);
    context_.err << rollback_line(completed_, failed_step, samples) << std::endl;
  }
  enter(Phase::kCheckpointSave);
  checkpoints_.set_spikes(guard_.state());
  if (auto status = checkpoints_.save_restored(completed_, position_); !status.ok()) return status;
  return true;
}

ExitCode train(const TrainConfig& config, const TrainContext& context) {
  Trainer trainer(config, context);
  const bool saves = is_checkpoint_writer(context.groups.mesh(), context.groups.rank());
  context.signals.loop_begins(trainer, saves ? kVoteWait : kFollowersVoteWait);
  const ExitCode code = trainer.run();
  context.signals.loop_ends();
  return code;
}

}  // namespace muster::trainer

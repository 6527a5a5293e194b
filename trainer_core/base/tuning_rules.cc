#include "trainer_core/base/tuning_rules.h"

#include <cmath>
#include <string>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/eval_task_files.h"

namespace muster::trainer {
namespace {

absl::Status check_best_evaluation(const TrainConfig& config) {
  const EvalConfig& eval = config.eval;
  if (eval.early_stopping_patience < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("early_stopping_patience is ", eval.early_stopping_patience,
                     ", but must be at least 1, or 0 (no early stopping)"));
  }
  if (!eval.tracks_best() || config.steps == 0) return absl::OkStatus();
  const std::string key = eval.keep_best_checkpoint ? "keep_best_checkpoint=True"
                                                    : absl::StrCat("early_stopping_patience=",
                                                                   eval.early_stopping_patience);
  if (!eval.enabled()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " needs evaluations; set eval_interval to a number of steps"));
  }
  if (eval.early_stopping_patience > 0 && eval.at_end) {
    return absl::InvalidArgumentError(
        absl::StrCat("early_stopping_patience=", eval.early_stopping_patience,
                     " needs evaluations during the training, but eval_tasks without eval_interval "
                     "is evaluated once, at its end; set eval_interval to a number of steps"));
  }
  if (eval.keep_best_checkpoint && !config.enable_checkpointing) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " needs checkpoints, but enable_checkpointing is False"));
  }
  const absl::Status metric =
      check_eval_metric(eval.best_metric, eval.tasks, eval.has_data(), config.dpo.enabled);
  if (metric.ok()) return metric;
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", metric.message()));
}

// Lower stages hold the weights of all layers as passes read them.
absl::Status check_weight_type(const TrainConfig& config) {
  const WeightType type = config.model.lora.weight_type;
  if (type == WeightType::kPlain || config.zero_stage == 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "lora_weight_qtype is ", av(name_of(kWeightTypeNames, type)), ", but zero_stage is ",
      config.zero_stage, ", which holds all weights in the type of activations: set zero_stage=3"));
}

absl::Status refuse(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("use_dpo=True ", what));
}

absl::Status check_dpo(const TrainConfig& config) {
  const DpoConfig& dpo = config.dpo;
  const ModelConfig& model = config.model;
  if (!dpo.enabled) return absl::OkStatus();
  if (!(dpo.beta > 0) || !std::isfinite(dpo.beta)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dpo_beta is ", dpo.beta, ", but must be above 0"));
  }
  if (!(dpo.label_smoothing >= 0 && dpo.label_smoothing < 0.5)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dpo_label_smoothing is ", dpo.label_smoothing, ", but must be in [0, 0.5)"));
  }
  if (dpo.label_smoothing > 0 && dpo.loss != DpoLoss::kSigmoid)
    return absl::InvalidArgumentError(
        "dpo_label_smoothing is above 0, but only dpo_loss_type=sigmoid has label smoothing");
  if (config.dataset_type != DatasetType::kShards)
    return refuse("needs dataset_type=shards and a folder that muster tokenize --dpo made");
  if (config.sft.enabled) return refuse("and use_sft=True exclude each other; set one of them");
  if (config.steps == 0)
    return refuse("trains, but eval_only does not: evaluate the run with muster eval --run");
  if (model.z_loss_multiplier > 0)
    return refuse("needs z_loss_multiplier=0: rejected answers would increase the z-loss");
  // Adapters leave the matrices, whose scales these are, unchanged.
  if (model.quantization.type == QuantizationType::kFp8Delayed && !model.lora.enabled())
    return refuse(
        "needs enable_lora=True with quantization=fp8, whose scales are those of the trained "
        "weights: take te_fp8_currentscaling or int8");
  return absl::OkStatus();
}

}  // namespace

absl::Status validate_tuning(const TrainConfig& config) {
  if (auto status = check_best_evaluation(config); !status.ok()) return status;
  if (auto status = check_weight_type(config); !status.ok()) return status;
  if (config.sft.enabled && config.dataset_type != DatasetType::kShards)
    return absl::InvalidArgumentError(
        "use_sft needs dataset_type=shards and a folder that muster tokenize --sft made");
  return check_dpo(config);
}

}  // namespace muster::trainer

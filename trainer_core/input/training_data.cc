#include "trainer_core/input/training_data.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/random/fnv.h"
#include "common/text/number_text.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/data/dpo_samples.h"
#include "trainer_core/data/sft_samples.h"
#include "trainer_core/input/data_order.h"

namespace muster::trainer {
namespace {

Samples::Kind kind_of(const TrainConfig& config) {
  return config.packing ? Samples::Kind::kPacked : Samples::Kind::kDocuments;
}

uint64_t fingerprint_of(const std::vector<std::shared_ptr<const TokenDataset>>& datasets) {
  std::string text;
  for (const auto& dataset : datasets) absl::StrAppend(&text, dataset->checksums(), "\n");
  return fnv1a(text);
}

std::string sft_note(const TrainConfig& config, const std::string& what, const SftCounts& counts,
                     uint64_t sequences) {
  std::string note = absl::StrFormat(
      "%s: %s in %s of %d tokens, %.1f%% full", what, counted(counts.samples, "sample"),
      counted(sequences, "sequence"), config.max_target_length,
      100.0 * static_cast<double>(counts.positions) /
          std::max(1.0, static_cast<double>(sequences) * config.max_target_length));
  if (counts.too_long > 0) {
    absl::StrAppend(
        &note, "; ", counts.too_long, " with more than ", config.max_target_length + 1, " tokens ",
        config.sft.long_samples == LongSamples::kDrop ? "are left out" : "are truncated");
  }
  if (counts.unlearned > 0)
    absl::StrAppend(&note, "; ", counts.unlearned,
                    " are left out because no completion is in the "
                    "sequence");
  return note;
}

// Makes the sequences of fine-tuning, and adds their account to `notes`.
absl::StatusOr<std::unique_ptr<Samples>> make_sft(const TrainConfig& config, Corpus corpus,
                                                  const std::string& what,
                                                  std::vector<std::string>& notes) {
  const SftOptions options{.packs = config.packing,
                           .drops_long = config.sft.long_samples == LongSamples::kDrop,
                           .completion_only = config.sft.completion_only,
                           .averages_samples = config.sft.loss_average == LossAverage::kSamples};
  auto made = make_sft_samples(std::move(corpus), config.max_target_length, options);
  if (!made.ok()) return made.status();
  const std::string note = sft_note(config, what, made->counts, made->samples->size());
  if (made->samples->size() == 0)
    return absl::InvalidArgumentError(absl::StrCat(
        note, ": nothing is left to train on; raise max_target_length, or give more samples"));
  notes.push_back(note);
  return std::move(made->samples);
}

// Makes the sequences of preference tuning, and adds their account to the notes.
absl::StatusOr<std::unique_ptr<Samples>> make_dpo(const TrainConfig& config, Corpus corpus,
                                                  const std::string& what, TrainingData& data) {
  if (!corpus.dataset().index().has_pairs) {
    return absl::InvalidArgumentError(
        absl::StrCat(what,
                     " has no pairs of answers, which use_dpo=True needs; make it with "
                     "muster tokenize --dpo"));
  }
  auto made = make_dpo_samples(std::move(corpus), config.max_target_length, config.packing);
  if (!made.ok()) return made.status();
  const DpoCounts& counts = made->counts;
  const uint64_t sequences = made->samples->size();
  std::string note =
      absl::StrFormat("%s: %s in %s of %d tokens, %.1f%% full", what, counted(counts.pairs, "pair"),
                      counted(sequences, "sequence"), config.max_target_length,
                      100.0 * static_cast<double>(counts.positions) /
                          std::max(1.0, static_cast<double>(sequences) * config.max_target_length));
  if (counts.too_long > 0)
    absl::StrAppend(&note, "; ", counts.too_long,
                    " are left out because both answers with their prompts have more than ",
                    config.max_target_length + 2, " tokens, of which the last ones are no inputs");
  if (sequences == 0)
    return absl::InvalidArgumentError(absl::StrCat(
        note, ": nothing is left to train on; raise max_target_length, or give more pairs"));
  data.notes.push_back(note);
  data.pairs_max = std::max(data.pairs_max, counts.pairs_max);
  return std::move(made->samples);
}

// The error for a corpus that yields no sequence reads "fewer than the 17 of one sequence".
absl::StatusOr<std::unique_ptr<Samples>> make_samples(const TrainConfig& config, Corpus corpus,
                                                      const std::string& what, TrainingData& data) {
  if (config.dpo.enabled) return make_dpo(config, std::move(corpus), what, data);
  if (corpus.dataset().index().has_pairs) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has pairs of answers (muster tokenize --dpo); set use_dpo=True"));
  }
  if (config.sft.enabled) return make_sft(config, std::move(corpus), what, data.notes);
  if (corpus.dataset().has_weights()) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has samples for fine-tuning (muster tokenize --sft); set use_sft=True"));
  }
  const uint64_t tokens = corpus.tokens();
  auto samples = Samples::make(kind_of(config), std::move(corpus), config.max_target_length);
  if (samples->size() > 0) return samples;
  return absl::InvalidArgumentError(
      config.packing ? absl::StrCat(what, " has ", counted(tokens, "token"), ", fewer than the ",
                                    config.max_target_length + 1,
                                    " of one sequence; lower max_target_length (",
                                    config.max_target_length, ") or give more text")
                     : absl::StrCat(what, " has no document"));
}

// Adds the sequences of a data set, for training and for evaluation.
absl::Status add_dataset(const TrainConfig& config, const DataShare& share, TrainingData& data) {
  auto opened = TokenDataset::open(share.folder, config.model.vocab_size);
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const TokenDataset> dataset = *std::move(opened);
  data.datasets.push_back(dataset);
  const double fraction = config.eval.holdout_fraction;
  auto split = split_corpus(dataset, fraction, config.data_shuffle_seed);
  if (!split.ok()) return split.status();
  const std::string of = fraction > 0 ? absl::StrCat(" with eval_holdout_fraction=", fraction) : "";
  auto train = make_samples(config, std::move(split->train),
                            absl::StrCat("the data set in ", share.folder, of), data);
  if (!train.ok()) return train.status();
  data.train.push_back({*std::move(train), share.weight});
  if (fraction == 0) return absl::OkStatus();
  auto eval = make_samples(config, std::move(split->eval),
                           absl::StrCat("the part of ", share.folder,
                                        " that eval_holdout_fraction=", fraction, " holds out"),
                           data);
  if (!eval.ok()) return eval.status();
  data.eval.push_back(*std::move(eval));
  return absl::OkStatus();
}

absl::Status add_eval_dataset(const TrainConfig& config, TrainingData& data) {
  const std::string& folder = config.eval.dataset_path;
  auto opened = TokenDataset::open(folder, config.model.vocab_size);
  if (!opened.ok())
    return absl::Status(opened.status().code(),
                        absl::StrCat("eval_dataset_path: ", opened.status().message()));
  const std::shared_ptr<const TokenDataset> dataset = *std::move(opened);
  data.datasets.push_back(dataset);
  auto eval =
      make_samples(config, Corpus(dataset), absl::StrCat("eval_dataset_path ", folder), data);
  if (!eval.ok()) return eval.status();
  data.eval.push_back(*std::move(eval));
  return absl::OkStatus();
}

absl::Status check_eval_steps(const TrainConfig& config, const TrainingData& data) {
  const EvalConfig& eval = config.eval;
  if (!eval.enabled() || eval.steps == -1) return absl::OkStatus();
  const uint64_t batch = static_cast<uint64_t>(eval.per_device_batch_size) *
                         static_cast<uint64_t>(batch_slice(mesh_of(config.mesh), 0).count);
  const uint64_t there = data.eval_sequences();
  if (static_cast<uint64_t>(eval.steps - 1) <= (there - 1) / batch) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "eval_steps is ", eval.steps, " batches of ", batch, " sequences, but there are ", there,
      " sequences to evaluate; use at most ", (there - 1) / batch + 1, ", or -1 for all"));
}

// Rejects a training without any step, which is a mistake in the config.
absl::Status check_epochs(const TrainConfig& config, const TrainingData& data) {
  if (config.num_epoch < 0 || config.only_evaluates()) return absl::OkStatus();
  const int64_t slices = batch_slice(mesh_of(config.mesh), 0).count;
  const int64_t batch = slices * config.per_device_batch_size * config.gradient_accumulation_steps;
  const uint64_t sequences = data.train_sequences();
  if (sequences >= static_cast<uint64_t>((batch + config.num_epoch - 1) / config.num_epoch))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_epoch=", config.num_epoch, " of ", sequences,
      " sequences is less than one batch, which has ", batch,
      "; lower per_device_batch_size or max_target_length, raise num_epoch, or give more text"));
}

}  // namespace

uint64_t TrainingData::train_sequences() const {
  uint64_t count = 0;
  for (const WeightedSamples& source : train) count += source.samples->size();
  return count;
}

uint64_t TrainingData::eval_sequences() const {
  uint64_t count = 0;
  for (const auto& source : eval) count += source->size();
  return count;
}

absl::StatusOr<TrainingData> open_training_data(const TrainConfig& config) {
  TrainingData data;
  if (config.dataset_type != DatasetType::kShards) {
    data.order = data_order(config, {}, {});
    return data;
  }
  const auto shares = parse_data_paths(config.dataset_path);
  if (!shares.ok()) return shares.status();
  for (const DataShare& share : *shares) {
    if (auto status = add_dataset(config, share, data); !status.ok()) return status;
  }
  data.order = data_order(config, *shares, data.datasets);
  if (!config.eval.dataset_path.empty()) {
    if (auto status = add_eval_dataset(config, data); !status.ok()) return status;
  }
  data.fingerprint = fingerprint_of(data.datasets);
  if (auto status = check_epochs(config, data); !status.ok()) return status;
  if (auto status = check_eval_steps(config, data); !status.ok()) return status;
  return data;
}

}  // namespace muster::trainer

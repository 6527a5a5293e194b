#include "trainer_core/step_data.h"

#include <utility>

#include <absl/memory/memory.h>

namespace muster::trainer {

int32_t sequences_per_step(const TrainConfig& config) {
  return config.per_device_batch_size * config.gradient_accumulation_steps;
}

absl::StatusOr<std::unique_ptr<StepData>> StepData::open(const TrainConfig& config, int rank,
                                                         int ranks) {
  const BatchGeometry geometry{rank, ranks, sequences_per_step(config), config.max_target_length,
                               config.model.vocab_size};
  std::unique_ptr<BatchSource> source;
  if (config.dataset_type == DatasetType::kSynthetic) {
    source = BatchSource::synthetic(geometry);
  } else {
    auto dataset = TokenDataset::open(config.dataset_path, config.model.vocab_size);
    if (!dataset.ok()) return dataset.status();
    auto shards = BatchSource::from_shards(std::move(*dataset), geometry, config.data_shuffle_seed,
                                           config.enable_data_shuffling);
    if (!shards.ok()) return shards.status();
    source = *std::move(shards);
  }
  return absl::WrapUnique(new StepData(config, geometry, std::move(source)));
}

StepData::StepData(const TrainConfig& config, const BatchGeometry& geometry,
                   std::unique_ptr<BatchSource> source)
    : geometry_(geometry),
      seed_(config.init_weights_seed),
      sequences_(config.per_device_batch_size),
      micro_batches_(config.gradient_accumulation_steps),
      source_(std::move(source)) {
  const auto tokens = static_cast<size_t>(sequences_) * static_cast<size_t>(geometry.seq_len);
  tokens_.resize(tokens);
  targets_.resize(tokens);
  weights_.resize(tokens);
}

uint64_t StepData::samples_per_step() const { return geometry_.global_batch(); }

size_t StepData::tokens_per_step() const {
  return tokens_.size() * static_cast<size_t>(micro_batches_);
}

absl::StatusOr<Batch> StepData::load(uint64_t first, int32_t micro_batch) {
  const absl::Status status =
      source_->fill(first, micro_batch * sequences_, tokens_, targets_, weights_);
  if (!status.ok()) return status;
  return Batch{tokens_, targets_, weights_, {seed_, samples(first, micro_batch).first}};
}

SampleRange StepData::samples(uint64_t first, int32_t micro_batch) const {
  const auto own =
      static_cast<uint64_t>(geometry_.rank) * static_cast<uint64_t>(geometry_.per_device);
  const auto skipped = static_cast<uint64_t>(micro_batch) * static_cast<uint64_t>(sequences_);
  return {first + own + skipped, static_cast<uint64_t>(sequences_)};
}

}  // namespace muster::trainer

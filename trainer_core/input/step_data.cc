#include "trainer_core/input/step_data.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/memory/memory.h>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/input/position_source.h"
#include "trainer_core/model/token_layout.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

BatchGeometry geometry_of(const TrainConfig& config, int rank, int32_t sequences) {
  const BatchSlice slice = batch_slice(mesh_of(config.mesh), rank);
  return {slice.index, slice.count, sequences, config.max_target_length, config.model.vocab_size};
}

SequenceParts parts_of(const TrainConfig& config, int rank) {
  const RankPart part = RankPart::of(mesh_of(config.mesh), rank);
  const Positions of_context = context_positions(config.max_target_length, part.context);
  return {sequence_positions(of_context, part.sequence), of_context};
}

// Restricts `sequences` to the positions that the rank computes.
std::unique_ptr<BatchSource> split(std::unique_ptr<BatchSource> sequences,
                                   const TrainConfig& config, int rank) {
  const SequenceParts parts = parts_of(config, rank);
  if (parts.tokens == Positions::first(config.max_target_length)) return sequences;
  return positions_of(std::move(sequences), config.max_target_length, parts);
}

BatchSequence order_of(const TrainConfig& config, int rank, const BatchGeometry& geometry) {
  const int32_t sequences = config.micro_batch_sequences();
  const SequenceParts parts = parts_of(config, rank);
  return {.sequences = sequences,
          .tokens = static_cast<int32_t>(parts.tokens.count()),
          .starts = config.packed() ? static_cast<int32_t>(parts.starts.count()) : 0,
          .micro_batches = (geometry.per_device + sequences - 1) / sequences,
          .samples_per_step = geometry.global_batch()};
}

uint64_t training_samples(const TrainConfig& config, const TrainingData& data) {
  if (config.num_epoch < 0) return kUnlimited;
  const auto epochs = static_cast<uint64_t>(config.num_epoch);
  const uint64_t sequences = data.train_sequences();
  return epochs > kUnlimited / sequences ? kUnlimited : epochs * sequences;
}

}  // namespace

std::unique_ptr<StepData> StepData::training(const TrainConfig& config, int rank,
                                             TrainingData& data) {
  const BatchGeometry geometry =
      geometry_of(config, rank, config.per_device_batch_size * config.gradient_accumulation_steps);
  BatchSequence order = order_of(config, rank, geometry);
  // Every step reads the samples of the first one.
  if (config.reuse_example_batch) order.samples_per_step = 0;
  const uint64_t samples = training_samples(config, data);
  auto source = data.train.empty()
                    ? BatchSource::synthetic(geometry)
                    : BatchSource::endless(std::move(data.train), geometry,
                                           config.data_shuffle_seed, config.enable_data_shuffling);
  return absl::WrapUnique(new StepData(config, rank, geometry, order, samples, std::move(source)));
}

std::unique_ptr<StepData> StepData::evaluation(const TrainConfig& config, int rank,
                                               std::vector<std::unique_ptr<Samples>> samples,
                                               int64_t batches) {
  const BatchGeometry geometry = geometry_of(config, rank, config.eval.per_device_batch_size);
  const uint64_t batch = geometry.global_batch();
  uint64_t sequences = 0;
  for (const auto& source : samples) sequences += source->size();
  const uint64_t steps =
      batches == -1 ? (sequences + batch - 1) / batch : static_cast<uint64_t>(batches);
  return absl::WrapUnique(new StepData(config, rank, geometry, order_of(config, rank, geometry),
                                       steps * batch,
                                       BatchSource::once(std::move(samples), geometry)));
}

StepData::StepData(const TrainConfig& config, int rank, const BatchGeometry& geometry,
                   const BatchSequence& order, uint64_t samples,
                   std::unique_ptr<BatchSource> source)
    : geometry_(geometry),
      order_(order),
      positions_(parts_of(config, rank).tokens),
      ranks_of_slice_(ranks_of_slice(mesh_of(config.mesh))),
      samples_(samples),
      seed_(config.init_weights_seed),
      prefetcher_(Prefetcher::start(split(std::move(source), config, rank), order)) {}

double StepData::tokens_per_step() const {
  return double{1} * geometry_.per_device * geometry_.seq_len / ranks_of_slice_;
}

Batch StepData::blank() {
  const auto sequences = static_cast<size_t>(order_.sequences);
  const size_t tokens = sequences * static_cast<size_t>(order_.tokens);
  blank_.tokens.assign(tokens, 0);
  blank_.targets.assign(tokens, 0);
  blank_.starts.assign(sequences * static_cast<size_t>(order_.starts), 0);
  blank_.weights.assign(tokens, 0.0F);
  return Batch{.tokens = blank_.tokens,
               .targets = blank_.targets,
               .weights = blank_.weights,
               .dropout = {seed_, 0},
               .starts = blank_.starts};
}

absl::StatusOr<Batch> StepData::load(uint64_t first, int32_t micro_batch) {
  const bool same_batch = order_.samples_per_step == 0;
  const auto buffers = prefetcher_->take({same_batch ? 0 : first, micro_batch});
  if (!buffers.ok()) return buffers.status();
  const BatchBuffers& batch = **buffers;
  return Batch{.tokens = batch.tokens,
               .targets = batch.targets,
               .weights = batch.weights,
               .dropout = {seed_, samples(first, micro_batch).first},
               .starts = batch.starts};
}

SampleRange StepData::samples(uint64_t first, int32_t micro_batch) const {
  const auto own =
      static_cast<uint64_t>(geometry_.rank) * static_cast<uint64_t>(geometry_.per_device);
  const auto skipped = static_cast<uint64_t>(micro_batch) * static_cast<uint64_t>(order_.sequences);
  const uint64_t left = static_cast<uint64_t>(geometry_.per_device) - skipped;
  return {first + own + skipped, std::min(static_cast<uint64_t>(order_.sequences), left)};
}

}  // namespace muster::trainer

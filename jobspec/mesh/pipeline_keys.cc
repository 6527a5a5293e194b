#include "jobspec/mesh/pipeline_keys.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

namespace muster::jobspec {
namespace {

constexpr std::string_view kPerStage = "num_layers_per_pipeline_stage";
constexpr std::string_view kRepeats = "num_pipeline_repeats";
constexpr std::string_view kMicroBatches = "num_pipeline_microbatches";

// Returns "2 or 4": the divisors of `whole` nearest to `wanted`, which is none.
std::string nearest_divisors(int32_t whole, int32_t wanted) {
  int32_t below = 1, above = whole;
  const auto consider = [&](int32_t divisor) {
    if (divisor <= wanted) below = std::max(below, divisor);
    if (divisor >= wanted) above = std::min(above, divisor);
  };
  for (int32_t i = 1; int64_t{i} * i <= whole; ++i) {
    if (whole % i != 0) continue;
    consider(i);
    consider(whole / i);
  }
  if (wanted > whole) return absl::StrCat("at most ", whole);
  return absl::StrCat(below, " or ", above);
}

// Returns the runs of layers per stage.
int32_t read_repeats(SettingsReader& reader, int32_t stages, int32_t layers) {
  int32_t per_stage = 1, repeats = -1;
  reader.read(kPerStage, per_stage);
  reader.read(kRepeats, repeats);
  reader.require(per_stage >= 1, kPerStage, "must be at least 1");
  reader.require(repeats >= 1 || repeats == -1, kRepeats,
                 "must be at least 1, or -1: as many as there are layers for");
  // A mesh that does not divide the layers is rejected with the mesh's keys.
  if (!reader.status().ok() || stages == 1 || layers % stages != 0) return 1;
  const int32_t of_stage = layers / stages;
  const std::string these =
      absl::StrCat("a stage has ", of_stage, " layers (base_num_decoder_layers ", layers, " on ",
                   stages, " stages)");
  if (repeats == -1) {
    reader.require(of_stage % per_stage == 0, kPerStage,
                   absl::StrCat(these, ", which it must divide: ",
                                nearest_divisors(of_stage, per_stage), " would do"));
    return of_stage / per_stage;
  }
  if (!reader.is_set_by_user(kPerStage) && of_stage % repeats == 0) return repeats;
  reader.require(
      int64_t{per_stage} * repeats == of_stage, kRepeats,
      of_stage % repeats == 0
          ? absl::StrCat(these, ", so ", kPerStage.data(), " would have to be ", of_stage / repeats)
          : absl::StrCat(these, ", which it must divide: ", nearest_divisors(of_stage, repeats),
                         " would do"));
  return repeats;
}

int32_t read_micro_batches(SettingsReader& reader, int32_t stages, int32_t sequences) {
  int32_t micro_batches = -1;
  reader.read(kMicroBatches, micro_batches);
  reader.require(micro_batches >= 1 || micro_batches == -1, kMicroBatches,
                 "must be at least 1, or -1: as many as there are stages");
  if (!reader.status().ok() || stages == 1) return 1;
  if (micro_batches == -1) micro_batches = stages;
  reader.require(
      sequences % micro_batches == 0, kMicroBatches,
      absl::StrCat("the batch of a slice (per_device_batch_size times its ranks) has ", sequences,
                   " sequences, which ", micro_batches, " micro-batches must divide: ",
                   nearest_divisors(sequences, micro_batches), " would do"));
  return micro_batches;
}

}  // namespace

void read_pipeline(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train) {
  const int32_t stages = mesh.degree(MeshAxis::kPipeline);
  const int32_t repeats = read_repeats(reader, stages, train.model.num_layers);
  const int32_t micro_batches = read_micro_batches(reader, stages, train.per_device_batch_size);
  if (!reader.status().ok()) return;
  train.pipeline_repeats = repeats;
  train.pipeline_microbatches = micro_batches;
  const int64_t of_step = int64_t{micro_batches} * train.gradient_accumulation_steps;
  reader.require(repeats == 1 || of_step % stages == 0, kMicroBatches,
                 absl::StrCat("with ", repeats, " repeats the ", of_step,
                              " micro-batches of a step must be a multiple of the ", stages,
                              " stages; ", kRepeats.data(), "=1 takes any number"));
}

}  // namespace muster::jobspec

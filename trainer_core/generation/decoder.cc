#include "trainer_core/generation/decoder.h"

#include <algorithm>
#include <limits>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/plan_builder.h"

namespace muster::trainer {
namespace {

// Returns the bytes of a block in all layers.
int64_t block_bytes(const ModelConfig& model, DType dtype, bool is_int8) {
  const int64_t rows =
      int64_t{2} * model.num_layers * model.num_kv_heads * CacheSize::kBlockPositions;
  if (is_int8) return rows * (model.head_dim + static_cast<int64_t>(sizeof(float)));
  return rows * model.head_dim * static_cast<int64_t>(dtype_bytes(dtype));
}

}  // namespace

absl::StatusOr<CacheSize> cache_size(const ModelConfig& model, DType dtype,
                                     const DecoderSize& size) {
  if (model.learns_positions() && size.context > model.trainable_position_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a context of ", size.context, " tokens; the model has learned positions for ",
                     model.trainable_position_size, " (trainable_position_size)"));
  }
  CacheSize cache{
      .capacity = size.context, .sequences = size.sequences_max, .is_int8 = size.int8_cache};
  const int64_t each = cache.blocks_per_sequence(),
                bytes = block_bytes(model, dtype, size.int8_cache);
  const int64_t all = each * size.sequences_max;
  int64_t blocks = size.cache_bytes / bytes;
  if (size.cache_bytes == 0) blocks = std::max(each, kCacheBytesDefault / bytes);
  if (blocks < each) {
    return absl::InvalidArgumentError(
        absl::StrCat("a cache of ", size.cache_bytes, " bytes has room for ",
                     blocks * CacheSize::kBlockPositions, " tokens; a context of ", size.context,
                     " tokens needs ", each * bytes, " bytes"));
  }
  cache.blocks =
      static_cast<int32_t>(std::min({blocks, all, int64_t{std::numeric_limits<int32_t>::max()}}));
  return cache;
}

Decoder::Decoder(const ModelConfig& model, DType dtype, const CacheSize& cache,
                 const DecoderSize& size, std::span<const LoraConfig> adapters)
    : ops_(cpu_ops(size.threads)),
      plan_(plan_decoder(model, size.step_rows, cache, size.threads, dtype, adapters)),
      arena_(plan_.memory) {
  MUSTER_CHECK(size.step_rows >= size.sequences_max)
      << size.step_rows << " rows for " << size.sequences_max << " sequences";
}

void Decoder::loaded() {
  round_loaded_params(plan_, arena_);
  model_ = std::make_unique<Transformer>(plan_, arena_, *ops_);
}

void Decoder::load_adapter(size_t index, std::span<const ParamSpec> table,
                           std::span<const float> values) {
  load_served_adapter(plan_, index, table, values, arena_, *ops_);
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::load(const TrainConfig& config,
                                                       const std::string& checkpoint,
                                                       const DecoderSize& size,
                                                       std::span<const NamedAdapter> adapters) {
  const ModelConfig model = base_of(config.model);
  const auto cache = cache_size(model, config.activation_type(), size);
  if (!cache.ok()) return cache.status();
  std::vector<LoraConfig> loras;
  for (const NamedAdapter& named : adapters) loras.push_back(named.adapters.model.lora);
  auto decoder = std::make_unique<Decoder>(model, config.activation_type(), *cache, size, loras);
  if (config.model.lora.enabled()) {
    const auto merged = ParameterSource::open(checkpoint, Verify::kSizes);
    if (!merged.ok()) return merged.status();
    const auto status = load_parameters(**merged, decoder->loading_params());
    if (!status.ok()) return status;
  } else {
    const auto status =
        restore_parameters(checkpoint, decoder->plan().rows(), decoder->loading_params());
    if (!status.ok()) return status;
  }
  decoder->loaded();
  for (size_t i = 0; i < adapters.size(); ++i)
    decoder->load_adapter(i, adapters[i].adapters.table, adapters[i].adapters.values);
  return decoder;
}

}  // namespace muster::trainer

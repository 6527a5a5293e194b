// A model with its parameters and its key/value cache, for generation on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/generation/adapter_files.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// The limits of a decoder. They determine its memory.
struct DecoderSize {
  int32_t context = 2048;      // maximum tokens of a prompt and its output
  int32_t sequences_max = 32;  // sequences that are computed at the same time
  int32_t step_rows = 256;     // maximum tokens of a step; at least sequences_max
  // Memory of the cache; 0: enough for one sequence of `context` tokens, or for all sequences if
  // that is at most kCacheBytesDefault.
  int64_t cache_bytes = 0;
  bool int8_cache = false;  // CacheSize::is_int8
  int32_t threads = 1;
};

// The default limit of the cache. Users of large models give their own.
constexpr int64_t kCacheBytesDefault = int64_t{1} << 30;

// Returns the size of the cache. Returns InvalidArgument if cache_bytes cannot hold one sequence,
// or if the model has fewer positions than `context`.
absl::StatusOr<CacheSize> cache_size(const ModelConfig& model, DType dtype,
                                     const DecoderSize& size);

class Decoder {
 public:
  // Allocates the memory; the caller then fills loading_params() and calls loaded().
  Decoder(const ModelConfig& model, DType dtype, const CacheSize& cache, const DecoderSize& size,
          std::span<const LoraConfig> adapters = {});
  // Loads the parameters of a checkpoint's step, and adapters of open_served_adapters(). If the
  // checkpoint has adapters alone, they are merged into their base.
  static absl::StatusOr<std::unique_ptr<Decoder>> load(const TrainConfig& config,
                                                       const std::string& checkpoint,
                                                       const DecoderSize& size,
                                                       std::span<const NamedAdapter> adapters = {});
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Returns the memory for the fp32 parameters, in the order of plan().rows().
  std::span<float> loading_params() { return trainer::loading_params(plan_, arena_); }
  // Called once, after the parameters are in place.
  void loaded();
  // Loads an adapter, after loaded(). `table` and `values`: load_served_adapter().
  void load_adapter(size_t index, std::span<const ParamSpec> table, std::span<const float> values);

  const TransformerPlan& plan() const { return plan_; }
  // Requires loaded().
  Transformer& model() { return *model_; }

 private:
  std::unique_ptr<Ops> ops_;
  TransformerPlan plan_;
  Arena arena_;
  std::unique_ptr<Transformer> model_;
};

}  // namespace muster::trainer

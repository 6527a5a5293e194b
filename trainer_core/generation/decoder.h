// A model with its parameters and its key/value cache, for generation on the CPU or a GPU. On CPUs,
// several ranks can divide the model (tensor_ranks.h): rank 0 calls the functions below, and each
// call makes the other ranks compute their part of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/generation/adapter_files.h"
#include "trainer_core/generation/tensor_exchange.h"
#include "trainer_core/generation/tensor_ranks.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// The limits of a decoder. They determine its memory.
struct DecoderSize {
  int32_t context = 2048;      // maximum tokens of a prompt and its output
  int32_t sequences_max = 32;  // sequences that are computed at the same time
  int32_t step_rows = 256;     // maximum tokens of a step; at least sequences_max
  // Memory of the cache; 0: enough for one sequence of `context` tokens, or for all sequences if
  // that is at most kCacheBytesDefault.
  int64_t cache_bytes = 0;
  bool int8_cache = false;   // CacheSize::is_int8
  int32_t threads = 1;       // the sum over all ranks
  int32_t tensor_ranks = 1;  // processes that divide the model
  // Host memory for parameters on their way to a GPU; a larger tensor takes its own size.
  int64_t staging_bytes = int64_t{256} << 20;
  int64_t device_reserve_bytes = 0;  // memory of a GPU that remains free
};

// Reads boxes of the parameters, in their types, into a block at their offsets.
using ReadBoxes =
    absl::FunctionRef<absl::Status(const std::vector<TensorBox>& boxes, std::span<float> block)>;

// The default limit of the cache. Users of large models give their own.
constexpr int64_t kCacheBytesDefault = int64_t{1} << 30;

// Returns the size of the cache of each rank. Returns InvalidArgument if cache_bytes cannot hold
// one sequence, or if the model has fewer positions than `context`.
absl::StatusOr<CacheSize> cache_size(const ModelConfig& model, DType dtype,
                                     const DecoderSize& size);

class Decoder {
 public:
  // Allocates the memory; the caller then calls read_params(). Without a `backend` it uses the CPU.
  // `ranks`: this rank; null: there are no others. `device`: see Arena.
  Decoder(const ModelConfig& model, DType dtype, const CacheSize& cache, const DecoderSize& size,
          std::span<const LoraConfig> adapters = {}, std::shared_ptr<Backend> backend = nullptr,
          std::unique_ptr<TensorRanks> ranks = nullptr, std::shared_ptr<void> device = nullptr);
  // Loads the parameters of a checkpoint's step, and adapters of open_served_adapters(). If the
  // checkpoint has adapters alone, they are merged into their base. Starts the other ranks of
  // size.tensor_ranks, which do not return; the process must have one thread and no `backend` then.
  // Returns ResourceExhausted if a GPU has too little free memory.
  static absl::StatusOr<std::unique_ptr<Decoder>> load(const TrainConfig& config,
                                                       const std::string& checkpoint,
                                                       const DecoderSize& size,
                                                       std::span<const NamedAdapter> adapters = {},
                                                       std::shared_ptr<Backend> backend = nullptr);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Reads this rank's parameters: at once, or for a GPU a few of them at a time. Called once.
  // Returns the first error of `read`.
  absl::Status read_params(ReadBoxes read);
  // Loads an adapter, after read_params(). `table` and `values`: load_served_adapter().
  void load_adapter(size_t index, std::span<const ParamSpec> table, std::span<const float> values);

  const TransformerPlan& plan() const { return plan_; }
  // Sentences for users about what load() has read.
  const std::vector<std::string>& notes() const { return notes_; }

  // The functions below require read_params(). They return the error of another rank that is gone,
  // or that does not respond (DeadlineExceeded), and then always.

  // Calls Transformer::decode().
  absl::Status decode(const DecodeBatch& batch);
  // Writes the logits of some rows of the last decode() to `out` (rows, V). Requires at most
  // plan().head_rows rows.
  absl::Status row_logits(std::span<const int32_t> rows, float* out);
  // Returns whether another rank can be lost, which check_ranks() reports also between calls.
  bool has_ranks() const { return ranks_ != nullptr; }
  absl::Status check_ranks() const { return ranks_ ? ranks_->check() : absl::OkStatus(); }
  // Returns the end of a rank that has caused `error`, if it is known, or else `error`.
  absl::Status cause_of(const absl::Status& error) const {
    return ranks_ ? ranks_->cause_of(error) : error;
  }
  // Ends the current call of another thread and all later ones, if they wait for a rank.
  void abort() const {
    if (ranks_) ranks_->abort();
  }
  // Computes what rank 0 calls, until rank 0 leaves. For the other ranks.
  absl::Status follow();

 private:
  static absl::StatusOr<std::unique_ptr<Decoder>> load_rank(const TrainConfig& config,
                                                            const std::string& checkpoint,
                                                            const DecoderSize& size,
                                                            std::span<const NamedAdapter> adapters,
                                                            std::shared_ptr<Backend> backend,
                                                            std::unique_ptr<TensorRanks> ranks);
  // Reads the parameters, and the scaling state, of a checkpoint.
  absl::Status read_checkpoint(const std::string& checkpoint);
  // Sends a call to the other ranks. `counts`: the numbers of its rows and of their adapters.
  absl::Status send_call(int32_t kind, std::vector<int32_t> numbers, std::array<int32_t, 2> counts);
  absl::Status gather_logits(std::span<const int32_t> rows, float* out);
  absl::Status read_to_device(const std::vector<TensorBox>& boxes, ReadBoxes read);

  std::unique_ptr<TensorRanks> ranks_;  // null: one rank
  std::shared_ptr<Backend> backend_;
  TransformerPlan plan_;
  Arena arena_;
  const int64_t staging_bytes_;
  std::unique_ptr<TensorExchange> exchange_;  // null: one rank
  std::unique_ptr<Transformer> model_;
  std::vector<float> part_;  // (head_rows, V / ranks) logits of a rank
  std::vector<std::string> notes_;
};

}  // namespace muster::trainer

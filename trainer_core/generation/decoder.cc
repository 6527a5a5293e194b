#include "trainer_core/generation/decoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/scaling_state.h"

namespace muster::trainer {
namespace {

// The calls that rank 0 makes the other ranks compute.
constexpr int32_t kDecodeCall = 1;
constexpr int32_t kLogitsCall = 2;
// The first message of a call: its kind, the numbers of rows and of their adapters, and the length
// of the second message.
using CallHeader = std::array<int32_t, 4>;

// Returns the bytes of a block in all layers, on all ranks. Ranks that share a head have copies.
int64_t block_bytes(const ModelConfig& model, DType dtype, bool is_int8, int32_t ranks) {
  const int64_t heads = std::max(model.num_kv_heads, ranks);
  const int64_t rows = int64_t{2} * model.num_layers * heads * CacheSize::kBlockPositions;
  if (is_int8) return rows * (model.head_dim + static_cast<int64_t>(sizeof(float)));
  return rows * model.head_dim * static_cast<int64_t>(dtype_bytes(dtype));
}

int32_t threads_of_rank(const DecoderSize& size) {
  return std::max(size.threads / size.tensor_ranks, 1);
}

// A failed allocation would end the process without naming the options.
absl::Status check_device_memory(const Backend& backend, const TransformerPlan& plan) {
  const size_t needed = plan.memory.total_bytes(), free = backend.free_bytes();
  if (backend.memory().is_host() || needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model and its cache need ", needed >> 20, " MiB, and ", backend.description(), " has ",
      free >> 20, " MiB free: give a smaller --cache-mib, --batch or --context, or --int8-cache"));
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
                bytes = block_bytes(model, dtype, size.int8_cache, size.tensor_ranks);
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
                 const DecoderSize& size, std::span<const LoraConfig> adapters,
                 std::shared_ptr<Backend> backend, std::unique_ptr<TensorRanks> ranks)
    : ranks_(std::move(ranks)),
      backend_(backend ? std::move(backend) : cpu_backend(threads_of_rank(size))),
      plan_(plan_decoder(model, size.step_rows, cache, backend_->threads(), dtype, adapters,
                         ranks_ ? ranks_->coordinate() : AxisCoordinate{})),
      arena_(plan_.memory, backend_->memory()) {
  MUSTER_CHECK(size.step_rows >= size.sequences_max)
      << size.step_rows << " rows for " << size.sequences_max << " sequences";
  if (!ranks_) return;
  exchange_ = std::make_unique<TensorExchange>(backend_->ops(), ranks_->group());
  const int64_t ids = largest_share(model.vocab_size, ranks_->size());
  part_.resize(static_cast<size_t>(plan_.head_rows * ids));
}

std::vector<TensorBox> Decoder::loading_boxes() const {
  std::vector<TensorBox> boxes;
  const std::vector<ParamSpec>& own = plan_.sharding.layout.table();
  for (size_t i = 0; i < own.size(); ++i) {
    boxes.push_back(tensor_box(plan_.params[i], plan_.part().tensor));
    boxes.back().offset = own[i].offset;
  }
  // The scaling state, which every rank has, follows.
  std::vector<TensorRow> rows = plan_.rows();
  for (size_t i = own.size(); i < rows.size(); ++i) {
    boxes.push_back(whole_box(rows[i]));
    boxes.back().offset += plan_.stored_parameters() - parameter_count(plan_.params);
  }
  return boxes;
}

std::span<float> Decoder::loading_params() {
  if (backend_->memory().is_host()) return trainer::loading_params(plan_, arena_);
  staged_.resize(static_cast<size_t>(plan_.stored_parameters() + scaling_elements(plan_.model)));
  return staged_;
}

void Decoder::loaded() {
  if (backend_->memory().is_host()) {
    round_loaded_params(plan_, arena_);
  } else {
    const std::vector<ParamSpec>& table = plan_.sharding.layout.table();
    size_t bytes = staged_.size() * sizeof(float);
    if (plan_.rounds_params()) {
      round_in_place(table, staged_.data());
      bytes = static_cast<size_t>(rounded_params(table).bytes);
    }
    backend_->memory().upload(staged_.data(), arena_.buffer(plan_.param_block), bytes);
    staged_ = {};
  }
  model_ = std::make_unique<Transformer>(plan_, arena_, backend_->ops(), nullptr, exchange_.get());
}

void Decoder::load_adapter(size_t index, std::span<const ParamSpec> table,
                           std::span<const float> values) {
  load_served_adapter(plan_, index, table, values, arena_, backend_->ops());
}

absl::Status Decoder::send_call(int32_t kind, std::vector<int32_t> numbers,
                                std::array<int32_t, 2> counts) {
  CallHeader header{kind, counts[0], counts[1], static_cast<int32_t>(numbers.size())};
  if (auto status = ranks_->group().broadcast(std::span(header), 0, "call"); !status.ok())
    return status;
  return ranks_->group().broadcast(std::span(numbers), 0, "call");
}

absl::Status Decoder::decode(const DecodeBatch& batch) {
  if (!ranks_) {
    model_->decode(batch);
    return absl::OkStatus();
  }
  std::vector<int32_t> numbers;
  for (const std::span<const int32_t> part :
       {batch.tokens, batch.sequences, batch.positions, batch.adapters, batch.blocks})
    numbers.insert(numbers.end(), part.begin(), part.end());
  const auto rows = static_cast<int32_t>(batch.tokens.size());
  const auto status = send_call(kDecodeCall, std::move(numbers),
                                {rows, static_cast<int32_t>(batch.adapters.size())});
  if (!status.ok()) return status;
  model_->decode(batch);
  return exchange_->status();
}

absl::Status Decoder::row_logits(std::span<const int32_t> rows, float* out) {
  if (!ranks_) {
    model_->row_logits(rows, out);
    return absl::OkStatus();
  }
  const auto status =
      send_call(kLogitsCall, {rows.begin(), rows.end()}, {static_cast<int32_t>(rows.size()), 0});
  return status.ok() ? gather_logits(rows, out) : status;
}

// Each rank sends the logits of its ids to rank 0.
absl::Status Decoder::gather_logits(std::span<const int32_t> rows, float* out) {
  const auto vocab = static_cast<size_t>(plan_.model.vocab_size);
  model_->row_logits(rows, part_.data());
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const Share ids = share_of(plan_.model.vocab_size, {rank, ranks_->size()});
    const auto count = static_cast<size_t>(ids.count);
    const std::span<float> part = std::span(part_).first(rows.size() * count);
    if (rank == ranks_->rank() && rank > 0) return ranks_->group().send(part, 0, "logits");
    if (ranks_->rank() > 0) continue;
    if (rank > 0) {
      const auto status = ranks_->group().recv(part, rank, "logits");
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < rows.size(); ++i)
      std::ranges::copy(part.subspan(i * count, count),
                        out + i * vocab + static_cast<size_t>(ids.first));
  }
  return absl::OkStatus();
}

absl::Status Decoder::follow() {
  std::vector<int32_t> numbers;
  while (true) {
    CallHeader header{};
    auto status = ranks_->group().broadcast(std::span(header), 0, "call");
    if (absl::IsUnavailable(status)) return absl::OkStatus();  // rank 0 has left
    if (!status.ok()) return status;
    const auto [kind, rows, adapters, count] = header;
    numbers.resize(static_cast<size_t>(count));
    status = ranks_->group().broadcast(std::span(numbers), 0, "call");
    if (!status.ok()) return status;
    std::span<const int32_t> rest = numbers;
    const auto take = [&rest](int32_t taken) {
      const auto part = rest.first(static_cast<size_t>(taken));
      rest = rest.subspan(static_cast<size_t>(taken));
      return part;
    };
    if (kind == kDecodeCall) {
      const auto tokens = take(rows), sequences = take(rows), positions = take(rows);
      const auto of_rows = take(adapters);
      model_->decode({tokens, sequences, positions, rest, of_rows});
      status = exchange_->status();
    } else {
      status = gather_logits(rest, nullptr);
    }
    if (!status.ok()) return status;
  }
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::load_rank(const TrainConfig& config,
                                                            const std::string& checkpoint,
                                                            const DecoderSize& size,
                                                            std::span<const NamedAdapter> adapters,
                                                            std::shared_ptr<Backend> backend,
                                                            std::unique_ptr<TensorRanks> ranks) {
  const ModelConfig model = base_of(config.model);
  const auto cache = cache_size(model, config.activation_type(), size);
  if (!cache.ok()) return cache.status();
  std::vector<LoraConfig> loras;
  for (const NamedAdapter& named : adapters) loras.push_back(named.adapters.model.lora);
  if (backend) {
    const auto status = check_device_memory(
        *backend, plan_decoder(model, size.step_rows, *cache, backend->threads(),
                               config.activation_type(), loras));
    if (!status.ok()) return status;
  }
  TensorRanks* const peers = ranks.get();
  auto decoder = std::make_unique<Decoder>(model, config.activation_type(), *cache, size, loras,
                                           std::move(backend), std::move(ranks));
  absl::Status status = decoder->read_checkpoint(checkpoint);
  if (peers != nullptr) status = peers->agree(status);
  if (!status.ok()) return status;
  decoder->loaded();
  for (size_t i = 0; i < adapters.size() && status.ok(); ++i) {
    const auto one = read_served_adapter(adapters[i], model);
    status = one.status();
    if (one.ok()) decoder->load_adapter(i, one->table, one->values);
  }
  if (peers != nullptr) status = peers->agree(status);
  if (!status.ok()) return status;
  return decoder;
}

absl::Status Decoder::read_checkpoint(const std::string& checkpoint) {
  const auto training = training_of_checkpoint(checkpoint);
  if (!training.ok()) return training.status();
  std::vector<TensorBox> params = loading_boxes();
  if (!training->model.lora.enabled())
    return restore_parameters(checkpoint, plan_.rows(), params, loading_params());
  const auto merged = ParameterSource::open(checkpoint, Verify::kSizes);
  if (!merged.ok()) return merged.status();
  auto status = check_shapes(checkpoint, training->model, plan_.model, "that of the config");
  if (!status.ok()) return status;
  // The scaling state is that of the training of the adapters.
  const auto state = params.begin() + std::ssize(plan_.params);
  const std::vector<TensorBox> scaling(state, params.end());
  params.erase(state, params.end());
  status = (*merged)->read_boxes(params, loading_params());
  if (!status.ok()) return status;
  notes_ = (*merged)->description().notes;
  const auto adapters = part_of(model_params(training->model), ParamPart::kTrained);
  return restore_parameters(checkpoint, model_rows(adapters, plan_.model), scaling,
                            loading_params());
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::load(const TrainConfig& config,
                                                       const std::string& checkpoint,
                                                       const DecoderSize& size,
                                                       std::span<const NamedAdapter> adapters,
                                                       std::shared_ptr<Backend> backend) {
  if (size.tensor_ranks == 1)
    return load_rank(config, checkpoint, size, adapters, std::move(backend), nullptr);
  if (backend && !backend->memory().is_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel is ", size.tensor_ranks,
                     ", but on a GPU a model is generated by one process: use --hardware cpu"));
  }
  const auto cache = cache_size(base_of(config.model), config.activation_type(), size);
  if (!cache.ok()) return cache.status();
  if (auto status = check_tensor_ranks(config.model, size.tensor_ranks); !status.ok())
    return status;
  auto ranks = TensorRanks::start(size.tensor_ranks, [&](std::unique_ptr<TensorRanks> own) {
    const auto decoder = load_rank(config, checkpoint, size, adapters, nullptr, std::move(own));
    return decoder.ok() ? (*decoder)->follow() : decoder.status();
  });
  if (!ranks.ok()) return ranks.status();
  return load_rank(config, checkpoint, size, adapters, nullptr, *std::move(ranks));
}

}  // namespace muster::trainer

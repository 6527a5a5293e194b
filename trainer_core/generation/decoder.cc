#include "trainer_core/generation/decoder.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
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

// Allocates the plan's memory on a GPU and leaves `reserve` bytes free.
absl::StatusOr<std::shared_ptr<void>> allocate_on_device(const Backend& backend,
                                                         const MemoryPlan& plan, size_t reserve) {
  const size_t bytes = plan.device_bytes();
  std::shared_ptr<void> memory;
  if (bytes + reserve <= backend.free_bytes()) memory = backend.memory().try_allocate(bytes);
  if (memory != nullptr) return memory;
  std::string uses;
  for (size_t i = 0; i < kMemoryCategoryNames.size(); ++i) {
    const size_t used = plan.category_bytes(static_cast<MemoryCategory>(i));
    if (used > 0) absl::StrAppend(&uses, av(kMemoryCategoryNames[i]), " ", used >> 20, ", ");
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: the model needs ", (bytes + reserve) >> 20, " MiB (", uses, "reserve ",
      reserve >> 20, "), and ", backend.description(), " has ", backend.free_bytes() >> 20,
      " MiB free; nvidia-smi shows what other processes hold"));
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
                 std::shared_ptr<Backend> backend, std::unique_ptr<TensorRanks> ranks,
                 std::shared_ptr<void> device)
    : ranks_(std::move(ranks)),
      backend_(backend ? std::move(backend) : cpu_backend(threads_of_rank(size))),
      plan_(plan_decoder(model, size.step_rows, cache, backend_->threads(), dtype, adapters,
                         ranks_ ? ranks_->coordinate() : AxisCoordinate{})),
      arena_(plan_.memory, backend_->memory(), std::move(device)),
      staging_bytes_(size.staging_bytes) {
  MUSTER_CHECK(size.step_rows >= size.sequences_max)
      << size.step_rows << " rows for " << size.sequences_max << " sequences";
  if (!ranks_) return;
  exchange_ = std::make_unique<TensorExchange>(backend_->ops(), ranks_->group());
  const int64_t ids = largest_share(model.vocab_size, ranks_->size());
  part_.resize(static_cast<size_t>(plan_.head_rows * ids));
}

absl::Status Decoder::read_params(ReadBoxes read) {
  const std::vector<TensorBox> boxes = stored_boxes(plan_);
  const size_t bytes = plan_.memory.at(plan_.param_block).bytes;
  const auto status = backend_->memory().is_host()
                          ? read(boxes, {arena_.f32(plan_.param_block),
                                         (bytes + sizeof(float) - 1) / sizeof(float)})
                          : read_to_device(boxes, read);
  if (!status.ok()) return status;
  model_ = std::make_unique<Transformer>(plan_, arena_, backend_->ops(), nullptr, exchange_.get());
  return absl::OkStatus();
}

absl::Status Decoder::read_to_device(const std::vector<TensorBox>& boxes, ReadBoxes read) {
  const auto begin_of = [](const TensorBox& box) {
    return box.offset * static_cast<int64_t>(dtype_bytes(box.dtype));
  };
  const auto end_of = [&](const TensorBox& box) {
    return begin_of(box) + box.elements() * static_cast<int64_t>(dtype_bytes(box.dtype));
  };
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  char* const block = static_cast<char*>(arena_.buffer(plan_.param_block));
  std::vector<float> staged;
  for (size_t first = 0, end = 0; first < boxes.size(); first = end) {
    const int64_t start = begin_of(boxes[first]);
    const int64_t base = start / kFloat * kFloat;  // both types are aligned from there
    for (end = first + 1; end < boxes.size() && end_of(boxes[end]) - base <= staging_bytes_;) ++end;
    std::vector<TensorBox> piece(boxes.begin() + static_cast<std::ptrdiff_t>(first),
                                 boxes.begin() + static_cast<std::ptrdiff_t>(end));
    const int64_t stop = end_of(piece.back());
    for (TensorBox& box : piece) box.offset -= base / static_cast<int64_t>(dtype_bytes(box.dtype));
    staged.resize(static_cast<size_t>((stop - base + kFloat - 1) / kFloat));
    if (auto status = read(piece, staged); !status.ok()) return status;
    const char* const from = reinterpret_cast<const char*>(staged.data()) + (start - base);
    backend_->memory().upload(from, block + start, static_cast<size_t>(stop - start));
  }
  return absl::OkStatus();
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
  const int32_t vocab = plan_.model.vocab_size;
  const auto part_of = [&](const Share& ids) {
    return std::span(part_).first(rows.size() * static_cast<size_t>(ids.count));
  };
  const auto copy_part = [&](const Share& ids) {
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(part_.data() + i * static_cast<size_t>(ids.count), ids.count,
                  out + i * static_cast<size_t>(vocab) + ids.first);
  };
  model_->row_logits(rows, part_.data());
  const Share own = plan_.vocabulary();
  if (ranks_->rank() > 0) return ranks_->group().send(part_of(own), 0, "logits");
  copy_part(own);
  for (int rank = 1; rank < ranks_->size(); ++rank) {
    const Share ids = share_of(vocab, {rank, ranks_->size()});
    if (auto status = ranks_->group().recv(part_of(ids), rank, "logits"); !status.ok())
      return status;
    copy_part(ids);
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
  std::shared_ptr<void> device;
  if (backend && !backend->memory().is_host()) {
    auto allocated =
        allocate_on_device(*backend,
                           plan_decoder(model, size.step_rows, *cache, backend->threads(),
                                        config.activation_type(), loras)
                               .memory,
                           static_cast<size_t>(size.device_reserve_bytes));
    if (!allocated.ok()) return allocated.status();
    device = *std::move(allocated);
  }
  TensorRanks* const peers = ranks.get();
  auto decoder = std::make_unique<Decoder>(model, config.activation_type(), *cache, size, loras,
                                           std::move(backend), std::move(ranks), std::move(device));
  absl::Status status = decoder->read_checkpoint(checkpoint);
  if (peers != nullptr) status = peers->agree(status);
  if (!status.ok()) return status;
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
  if (!training->model.lora.enabled()) {
    return read_params([&](const std::vector<TensorBox>& boxes, std::span<float> block) {
      return restore_parameters(checkpoint, plan_.rows(), boxes, block);
    });
  }
  const auto merged = ParameterSource::open(checkpoint, Verify::kSizes);
  if (!merged.ok()) return merged.status();
  auto status = check_shapes(checkpoint, training->model, plan_.model, "that of the config");
  if (!status.ok()) return status;
  notes_ = (*merged)->description().notes;
  // The scaling state is that of the training of the adapters.
  const auto adapters = part_of(model_params(training->model), ParamPart::kTrained);
  const std::vector<TensorRow> rows = model_rows(adapters, plan_.model);
  std::set<std::string> names;
  for (const ParamSpec& param : plan_.params) names.insert(param.name);
  return read_params([&](const std::vector<TensorBox>& boxes, std::span<float> block) {
    std::vector<TensorBox> params, scaling;
    for (const TensorBox& box : boxes)
      (names.contains(box.tensor) ? params : scaling).push_back(box);
    auto read = (*merged)->read_boxes(params, block);
    return read.ok() && !scaling.empty() ? restore_parameters(checkpoint, rows, scaling, block)
                                         : read;
  });
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::load(const TrainConfig& config,
                                                       const std::string& checkpoint,
                                                       const DecoderSize& size,
                                                       std::span<const NamedAdapter> adapters,
                                                       std::shared_ptr<Backend> backend) {
  if (size.tensor_ranks == 1)
    return load_rank(config, checkpoint, size, adapters, std::move(backend), nullptr);
  MUSTER_CHECK(!backend) << "ranks open their own backends";
  const auto cache = cache_size(base_of(config.model), config.activation_type(), size);
  if (!cache.ok()) return cache.status();
  if (auto status = check_tensor_ranks(config.model, size.tensor_ranks); !status.ok())
    return status;
  auto ranks = TensorRanks::start(size.tensor_ranks, [&](std::unique_ptr<TensorRanks> own) {
    const auto decoder = load_rank(config, checkpoint, size, adapters, nullptr, std::move(own));
    return decoder.ok() ? (*decoder)->follow() : decoder.status();
  });
  if (!ranks.ok()) return ranks.status();
  auto decoder = load_rank(config, checkpoint, size, adapters, nullptr, *std::move(ranks));
  if (decoder.ok()) (*decoder)->ranks_->limit_exchanges(kStepTime);
  return decoder;
}

}  // namespace muster::trainer

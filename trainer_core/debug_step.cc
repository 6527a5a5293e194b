#include "trainer_core/debug_step.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/hugging_face.h"
#include "trainer_core/checkpoint/safetensors.h"
#include "trainer_core/decode.h"
#include "trainer_core/replica.h"

namespace muster::trainer {
namespace {

// A batch that somebody compares with: far more than fits beside a model's logits in most memories.
constexpr size_t kTokensBytesMax = 64 << 20;

struct TokenLists {
  int32_t batch = 0;
  int32_t seq_len = 0;
  std::vector<int32_t> ids;  // (batch, seq_len)
};

absl::StatusOr<TokenLists> read_tokens(const std::string& path, int32_t vocab) {
  const auto json = read_json_file(path, kTokensBytesMax);
  if (!json.ok()) return json.status();
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (!json->is_array() || json->empty() || !json->front().is_array())
    return bad("expected a list of lists of token ids, such as [[1, 2, 3], [4, 5, 6]]");
  const size_t length = json->front().size();
  if (length < 2) return bad("a list has fewer than 2 tokens: there is nothing to predict");
  TokenLists lists{static_cast<int32_t>(json->size()), static_cast<int32_t>(length), {}};
  for (size_t i = 0; i < json->size(); ++i) {
    const nlohmann::json& list = (*json)[i];
    if (!list.is_array() || list.size() != length) {
      return bad(absl::StrCat("list ", i, " has ", list.is_array() ? list.size() : 0,
                              " tokens, and the first has ", length, "; all must be equally long"));
    }
    for (const nlohmann::json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab)) {
        return bad(absl::StrCat("token ", id.dump(), " in list ", i, " is no id below vocab_size (",
                                vocab, ")"));
      }
      lists.ids.push_back(id.get<int32_t>());
    }
  }
  return lists;
}

// Each token is the target of the one before it; the last of a list has none.
struct Targets {
  explicit Targets(const TokenLists& lists) : ids(lists.ids), weights(lists.ids.size(), 1.0F) {
    const auto length = static_cast<size_t>(lists.seq_len);
    for (size_t i = 0; i + 1 < ids.size(); ++i) ids[i] = lists.ids[i + 1];
    for (size_t i = length - 1; i < ids.size(); i += length) weights[i] = 0;
  }
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

absl::StatusOr<ModelConfig> model_of(const std::string& folder, std::string& checkpoint) {
  if (is_hugging_face_folder(folder)) return read_hugging_face_config(folder);
  auto found = find_checkpoint(folder);
  if (!found.ok()) return found.status();
  checkpoint = *found;
  auto info = verify_checkpoint(checkpoint, /*checksums=*/false);
  if (!info.ok()) return info.status();
  auto config = train_config_from_json(info->config);
  if (!config.ok()) return config.status();
  return config->model;
}

// Gathers tensors and their memory; writes them in the order in which they came.
class Output {
 public:
  void add(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    values_.push_back(std::move(values));
    tensors_.push_back({std::move(name), std::move(shape), values_.back().data()});
  }
  absl::Status write(const std::string& path) const {
    const std::string temporary = path + ".tmp";
    std::error_code error;
    const auto digest = write_safetensors(temporary, tensors_);
    if (digest.ok()) std::filesystem::rename(temporary, path, error);
    if (digest.ok() && !error) return absl::OkStatus();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    if (!digest.ok()) return digest.status();
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", error.message()));
  }

 private:
  std::vector<std::vector<float>> values_;  // moving a vector leaves its numbers where they are
  std::vector<TensorToWrite> tensors_;
};

std::vector<float> scaled(std::vector<float> values, double factor) {
  for (float& value : values) value = static_cast<float>(factor * value);
  return values;
}

class DebugStep {
 public:
  DebugStep(const TrainConfig& config, int32_t threads, const TokenLists& lists)
      : config_(config),
        lists_(lists),
        replica_(config, threads),
        tensors_(hugging_face_tensors(config.model, replica_.table())) {}

  absl::Status load(const DebugStepOptions& options, const std::string& checkpoint) {
    const std::span<float> params = replica_.model().params();
    if (checkpoint.empty()) return load_hugging_face(options.folder, tensors_, params);
    return restore_checkpoint(checkpoint, replica_.table(), {params, {}, {}});
  }

  DebugStepResult run(Output& out) {
    Transformer& model = replica_.model();
    std::vector<float> logits(lists_.ids.size() * static_cast<size_t>(config_.model.vocab_size));
    model.all_logits(lists_.ids, logits.data());
    out.add("logits", {lists_.batch, lists_.seq_len, config_.model.vocab_size}, std::move(logits));

    const Targets targets(lists_);
    const LossSum sum = model.forward_backward({lists_.ids, targets.ids, targets.weights});
    DebugStepResult result{.loss = sum.loss / sum.weight,
                           .parameter_count = parameter_count(replica_.table())};
    result.gradient_norm =
        std::sqrt(replica_.ops().sum_of_squares(Replica::flat(model.grads()))) / sum.weight;
    out.add("loss", {1}, {static_cast<float>(result.loss)});
    for (const HuggingFaceTensor& tensor : tensors_) {
      out.add("grad." + tensor.name, tensor.shape,
              scaled(in_their_layout(tensor, model.grads()), 1 / sum.weight));
    }
    update(result.gradient_norm, sum.weight);
    for (const HuggingFaceTensor& tensor : tensors_)
      out.add("param." + tensor.name, tensor.shape, in_their_layout(tensor, model.params()));
    return result;
  }

 private:
  void update(double gradient_norm, double weight) {
    const OptimizerConfig& optimizer = config_.optimizer;
    const double clip = clip_factor(gradient_norm, optimizer.clipping_threshold);
    adamw_update(replica_.ops(), replica_.table(), optimizer, optimizer.learning_rate,
                 clip / weight, 1, replica_.update_blocks());
  }

  const TrainConfig& config_;
  const TokenLists& lists_;
  Replica replica_;
  std::vector<HuggingFaceTensor> tensors_;
};

}  // namespace

absl::StatusOr<DebugStepResult> debug_step(const TrainConfig& settings,
                                           const DebugStepOptions& options) {
  std::string checkpoint;
  auto model = model_of(options.folder, checkpoint);
  if (!model.ok()) return model.status();
  const auto lists = read_tokens(options.tokens, model->vocab_size);
  if (!lists.ok()) return lists.status();
  TrainConfig config = settings;
  config.model = *std::move(model);
  config.per_device_batch_size = lists->batch;
  config.max_target_length = lists->seq_len;
  if (auto status = validate(config); !status.ok()) return status;
  DebugStep step(config, options.threads, *lists);
  if (auto status = step.load(options, checkpoint); !status.ok()) return status;
  Output out;
  DebugStepResult result = step.run(out);
  if (auto status = out.write(options.out); !status.ok()) return status;
  return result;
}

}  // namespace muster::trainer

#include "trainer_core/tools/debug_step.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/text/number_text.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/machine_memory.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {
namespace {

// The maximum size of the file of tokens: far more than a comparison needs.
constexpr size_t kTokensBytesMax = 64 << 20;

struct TokenLists {
  int32_t batch = 0;
  int32_t seq_len = 0;
  std::vector<int32_t> ids;  // (batch, seq_len)
};

absl::StatusOr<TokenLists> read_tokens(const std::string& path, const ModelConfig& model) {
  const int32_t vocab = model.vocab_size;
  const auto read = read_json_file(path, kTokensBytesMax);
  if (!read.ok()) return read.status();
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (!read->is_array() || read->empty() || !read->front().is_array())
    return bad("expected a list of lists of token ids, such as [[1, 2, 3], [4, 5, 6]]");
  const size_t length = read->front().size();
  if (length < 2) return bad("a list has fewer than 2 tokens: there is nothing to predict");
  if (model.learns_positions() && length > static_cast<size_t>(model.trainable_position_size)) {
    return bad(absl::StrCat("a list has ", length,
                            " tokens, but the model has learned positions for ",
                            model.trainable_position_size));
  }
  TokenLists lists{static_cast<int32_t>(read->size()), static_cast<int32_t>(length), {}};
  for (size_t i = 0; i < read->size(); ++i) {
    const nlohmann::json& list = (*read)[i];
    if (!list.is_array()) return bad(absl::StrCat(show_json(list), " is not a list of token ids"));
    if (list.size() != length) {
      return bad(absl::StrCat("list ", i, " has ", counted(list.size(), "token"),
                              ", and the first has ", length, "; all must be equally long"));
    }
    for (const nlohmann::json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab)) {
        return bad(absl::StrCat("token ", show_json(id), " in list ", i,
                                " is no id below vocab_size (", vocab, ")"));
      }
      lists.ids.push_back(id.get<int32_t>());
    }
  }
  return lists;
}

// The target of each token is the next one; the last token of a list has none.
struct Targets {
  explicit Targets(const TokenLists& lists) : ids(lists.ids), weights(lists.ids.size(), 1.0F) {
    const auto length = static_cast<size_t>(lists.seq_len);
    for (size_t i = 0; i + 1 < ids.size(); ++i) ids[i] = lists.ids[i + 1];
    for (size_t i = length - 1; i < ids.size(); i += length) weights[i] = 0;
  }
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// Collects tensors and writes them to a file. A temporary file next to it shows from the beginning
// that the path can be written, and is removed if nothing was written.
class Output {
 public:
  // Returns InvalidArgument for a path where no file can be created, or that is one of the inputs.
  static absl::StatusOr<std::unique_ptr<Output>> create(const DebugStepOptions& options) {
    const std::filesystem::path path = options.out;
    std::error_code error;
    const auto bad = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("--out ", options.out, ": ", what));
    };
    if (path.filename().empty()) return bad("name a file");
    const auto status = std::filesystem::symlink_status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      return bad("the path exists and is not a regular file");
    if (std::filesystem::equivalent(path, options.tokens, error)) return bad("this is --tokens");
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    if (std::filesystem::equivalent(folder, options.folder, error))
      return bad("this is in the model's folder; choose another folder");
    std::string temporary = absl::StrCat(options.out, ".XXXXXX");
    const int fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return bad(absl::StrCat("cannot write there: ", std::strerror(errno)));
    close(fd);
    return absl::WrapUnique(new Output(options.out, std::move(temporary)));
  }
  ~Output() {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void add(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    values_.push_back(std::move(values));
    tensors_.push_back({std::move(name), std::move(shape), values_.back().data()});
  }
  absl::Status write() const {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);  // write_safetensors() creates it again
    if (const auto digest = write_safetensors(temporary_, tensors_); !digest.ok())
      return digest.status();
    std::error_code error;
    std::filesystem::permissions(temporary_, kReadable, error);
    std::filesystem::rename(temporary_, path_, error);
    if (!error) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path_, ": ", error.message()));
  }

 private:
  // The permissions of the output, those of other programs with the usual umask; mkostemp() creates
  // private files.
  static constexpr auto kReadable =
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write |
      std::filesystem::perms::group_read | std::filesystem::perms::others_read;

  Output(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  std::string path_;
  std::string temporary_;
  std::vector<std::vector<float>> values_;  // moving a vector does not move its elements
  std::vector<TensorToWrite> tensors_;
};

bool is_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// Checks the memory of a step: its plan, and every tensor of the output.
absl::Status check_memory(const TrainConfig& config, int32_t threads) {
  const TrainingPlan plan = plan_training(config, threads, Staging::kNo);
  const double tokens = double{1} * config.per_device_batch_size * config.max_target_length;
  const double output =
      sizeof(float) * (tokens * config.model.vocab_size +
                       2.0 * static_cast<double>(parameter_count(plan.model.params)));
  const double needed = static_cast<double>(plan.memory().total_bytes()) + output;
  const auto available = available_memory(MachineRoots());
  if (!available || needed <= static_cast<double>(available->bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the step needs %.0f MiB of memory (%.0f MiB of them for what it writes), but this machine "
      "has %.0f MiB available%s; give fewer or shorter lists of tokens, or a smaller model",
      needed / kMiB, output / kMiB, static_cast<double>(available->bytes) / kMiB,
      limit_note(*available)));
}

std::vector<float> scaled(std::vector<float> values, double factor) {
  for (float& value : values) value = static_cast<float>(factor * value);
  return values;
}

class DebugStep {
 public:
  DebugStep(const TrainConfig& config, int32_t threads, const TokenLists& lists)
      : config_(config),
        lists_(lists),
        rank_model_(config, threads),
        tensors_(hugging_face_tensors(config.model, rank_model_.table())) {}

  // Loads the parameters and, from a checkpoint of Muster, the scaling state.
  absl::Status load(const ParameterSource& source) {
    Transformer& model = rank_model_.model();
    const ParameterDescription& from = source.description();
    if (from.format == ParameterFormat::kMuster && !from.is_merged)
      return restore_parameters(from.folder, rank_model_.plan().model.rows(), model.state());
    return load_parameters(source, model.params());
  }

  DebugStepResult run(Output& out) {
    Transformer& model = rank_model_.model();
    DebugStepResult result{.parameter_count = parameter_count(rank_model_.table())};
    for (const HuggingFaceTensor& tensor : tensors_)
      note(tensor.name, tensor.part_of(model.params()), result);
    std::vector<float> logits(lists_.ids.size() * static_cast<size_t>(config_.model.vocab_size));
    model.all_logits(lists_.ids, logits.data());
    note("logits", logits, result);
    out.add("logits", {lists_.batch, lists_.seq_len, config_.model.vocab_size}, std::move(logits));

    const Targets targets(lists_);
    const LossSum sum = model.forward_backward({lists_.ids, targets.ids, targets.weights});
    result.loss = sum.loss / sum.weight;
    result.gradient_norm =
        std::sqrt(rank_model_.ops().sum_of_squares(RankModel::flat(model.grads()))) / sum.weight;
    const std::vector<float> loss = {static_cast<float>(result.loss)};
    note("loss", loss, result);
    out.add("loss", {1}, loss);
    for (const HuggingFaceTensor& tensor : tensors_) {
      auto gradient =
          scaled(in_their_layout(tensor, tensor.part_of(model.grads())), 1 / sum.weight);
      note("grad." + tensor.name, gradient, result);
      out.add("grad." + tensor.name, tensor.shape, std::move(gradient));
    }
    if (!result.not_finite.empty()) return result;
    update(result.gradient_norm, sum.weight);
    for (const HuggingFaceTensor& tensor : tensors_)
      out.add("param." + tensor.name, tensor.shape,
              in_their_layout(tensor, tensor.part_of(model.params())));
    return result;
  }

 private:
  static void note(const std::string& name, std::span<const float> values,
                   DebugStepResult& result) {
    if (result.not_finite.empty() && !is_finite(values)) result.not_finite = name;
  }

  void update(double gradient_norm, double weight) {
    const OptimizerConfig& optimizer = config_.optimizer;
    const double clip = clip_factor(gradient_norm, optimizer.clipping_threshold);
    const UpdateStep first{.learning_rate = optimizer.learning_rate,
                           .grad_scale = clip / weight,
                           .t = 1,
                           .seed = config_.init_weights_seed};
    MUSTER_CHECK(rank_model_.update(first).ok()) << "a rank alone waits for no other rank";
  }

  const TrainConfig& config_;
  const TokenLists& lists_;
  RankModel rank_model_;
  std::vector<HuggingFaceTensor> tensors_;
};

}  // namespace

absl::StatusOr<DebugStepResult> debug_step(const TrainConfig& settings,
                                           const DebugStepOptions& options) {
  const auto source = ParameterSource::open(options.folder);
  if (!source.ok()) return source.status();
  const ModelConfig& model = (*source)->description().model;
  const auto lists = read_tokens(options.tokens, model);
  if (!lists.ok()) return lists.status();
  TrainConfig config = settings;
  config.model = model;
  if ((*source)->description().format != ParameterFormat::kMuster)
    config.model.quantization = settings.model.quantization;
  config.model.dropout_rate = config.model.input_dropout_rate = 0;  // masks are not comparable
  config.per_device_batch_size = lists->batch;
  config.max_target_length = lists->seq_len;
  config.mesh = {};  // one rank
  config.pipeline_repeats = config.pipeline_microbatches = 1;
  config.model.experts.num_groups = 0;  // num_groups is for the batch of the training
  if (auto status = validate(config); !status.ok()) return status;
  if (auto status = check_memory(config, options.threads); !status.ok()) return status;
  const auto out = Output::create(options);
  if (!out.ok()) return out.status();
  DebugStep step(config, options.threads, *lists);
  if (auto status = step.load(**source); !status.ok()) return status;
  DebugStepResult result = step.run(**out);
  if (auto status = (*out)->write(); !status.ok()) return status;
  return result;
}

}  // namespace muster::trainer

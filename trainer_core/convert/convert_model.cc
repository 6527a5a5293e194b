#include "trainer_core/convert/convert_model.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"
#include "trainer_core/convert/new_folder.h"
#include "trainer_core/convert/parameter_checkpoint.h"
#include "trainer_core/convert/tokenizer_files.h"
#include "trainer_core/convert/write_hugging_face.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// The bytes that are needed in addition to the weights: for a tokenizer, JSON files and the file
// system itself.
constexpr uint64_t kRoomBesideWeights = 16 << 20;

ConvertTarget target_of(const ConvertOptions& options, ParameterFormat from) {
  if (options.target) return *options.target;
  return from == ParameterFormat::kMuster ? ConvertTarget::kHuggingFace : ConvertTarget::kMuster;
}

absl::Status check_options(const ConvertOptions& options, ConvertTarget target) {
  if (target == ConvertTarget::kHuggingFace || !options.stored ||
      options.stored == StoredType::kF32)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--dtype ", av(type_name(*options.stored)),
      ": conversion writes checkpoints of muster in float32, which a run with "
      "weight_dtype=bfloat16 rounds when it loads them; --dtype is for a Hugging Face folder "
      "(--to hf)"));
}

// Returns the config of the checkpoint: that of the source, or the defaults with the source's
// model. Its paths are valid once the folder has its final name.
TrainConfig config_of(const ParameterDescription& source, const std::string& to,
                      const std::string& tokenizer) {
  TrainConfig config = source.config.value_or(TrainConfig());
  std::error_code error;
  const fs::path place = fs::absolute(to, error).lexically_normal();
  if (!source.config) {
    config.run_name = (place.has_filename() ? place : place.parent_path()).filename().string();
    config.model = source.model;
    config.steps = config.optimizer.schedule_steps = 1;
    const int32_t known = std::max(source.max_position, source.model.trainable_position_size);
    config.max_target_length = std::max(known, 1);
  }
  config.model.quantization = {};  // the source does not have its scaling state
  config.weight_dtype = ComputeType::kFloat32;
  config.checkpoint_directory = (place / "checkpoints").string();
  if (!tokenizer.empty()) {
    config.tokenizer_path = (place / tokenizer).string();
    config.tokenizer_type.clear();
  }
  return config;
}

BeforeTensor with_stop(const ConvertOptions& options, const ConvertProgress& progress,
                       int64_t total) {
  return [&options, &progress, total](int64_t done) -> absl::Status {
    if (options.stop != nullptr && *options.stop)
      return absl::CancelledError("stopped; nothing was written");
    if (progress) progress(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return absl::OkStatus();
  };
}

// Returns the copied file that a run of Muster can read; "" if there is none. A SentencePiece model
// is preferred, because a tokenizer.json in the same folder uses byte fallback, which Muster does
// not support.
std::string tokenizer_file(const TokenizerFiles& files) {
  const auto has = [&](const char* name) {
    return std::find(files.names.begin(), files.names.end(), name) != files.names.end();
  };
  if (!files.sentence_piece.empty() || has(kSentencePieceFile)) return kSentencePieceFile;
  return has(kHuggingFaceTokenizerFile) ? kHuggingFaceTokenizerFile : "";
}

int64_t elements_of(const std::vector<HuggingFaceTensor>& tensors) {
  int64_t count = 0;
  for (const HuggingFaceTensor& tensor : tensors) count += tensor.elements();
  return count;
}

absl::StatusOr<WrittenWeights> write(const ParameterSource& source, const TokenizerFiles& tokenizer,
                                     const ConvertOptions& options, ConvertTarget target,
                                     const BeforeTensor& before) {
  const ParameterDescription& model = source.description();
  const StoredType stored =
      target == ConvertTarget::kMuster ? StoredType::kF32 : options.stored.value_or(model.stored);
  const auto exported =
      target == ConvertTarget::kMuster
          ? HuggingFaceExport()
          : export_to_hugging_face(model.model, model.max_position, tokenizer.token_ids);
  if (!exported.ok()) return exported.status();
  if (target == ConvertTarget::kHuggingFace &&
      elements_of(exported->tensors) != source.parameters()) {
    return absl::InternalError(absl::StrCat("the export has ", elements_of(exported->tensors),
                                            " of ", source.parameters(), " parameters"));
  }
  const uint64_t bytes = static_cast<uint64_t>(source.parameters()) * stored_bytes(stored);
  const auto folder = NewFolder::create(options.to, bytes + kRoomBesideWeights);
  if (!folder.ok()) return folder.status();
  auto written =
      target == ConvertTarget::kMuster
          ? write_checkpoint(source, config_of(model, options.to, tokenizer_file(tokenizer)),
                             (*folder)->file("checkpoints"), before)
          : write_hugging_face(source, *exported, stored, options.shard_bytes,
                               (*folder)->temporary(), before);
  if (!written.ok()) return written.status();
  if (auto status = write_tokenizer_files(tokenizer, (*folder)->temporary()); !status.ok())
    return status;
  if (auto status = (*folder)->publish(); !status.ok()) return status;
  return written;
}

// Writes adapters for PEFT.
absl::StatusOr<ConvertReport> convert_adapters(const ConvertOptions& options) {
  const auto parts = open_with_base(options.from, options.base);
  if (!parts.ok()) return parts.status();
  const auto& [adapters, base] = *parts;
  const ParameterDescription& model = base->description();
  if (base->tensors().front().name.starts_with("transformer."))
    return absl::InvalidArgumentError(
        absl::StrCat(options.from,
                     ": PEFT's adapters of GPT-2 have other matrices (c_attn); merge the "
                     "adapters instead: --to hf"));
  const auto folder =
      NewFolder::create(options.to, kRoomBesideWeights + adapters.values.size() * sizeof(float));
  if (!folder.ok()) return folder.status();
  const auto bytes = write_peft_folder(adapters, model.folder, (*folder)->temporary());
  if (!bytes.ok()) return bytes.status();
  if (auto status = (*folder)->publish(); !status.ok()) return status;
  ConvertReport report{.from = ParameterFormat::kMuster,
                       .target = ConvertTarget::kPeft,
                       .from_folder = adapters.folder,
                       .to = options.to,
                       .parameters = static_cast<int64_t>(adapters.values.size()),
                       .stored = StoredType::kF32,
                       .files = 1,
                       .bytes = *bytes,
                       .rounded = 0,
                       .has_tokenizer = false,
                       .tensors = {},
                       .notes = {}};
  report.tensors.used = adapters.table.size();
  if (const WeightType type = adapters.model.lora.weight_type; type != WeightType::kPlain) {
    const auto name = av(name_of(kWeightTypeNames, type));
    report.notes.push_back(
        absl::StrCat("the adapters were trained with lora_weight_qtype=", name,
                     ", which PEFT's format does not state: ",
                     type == WeightType::kNf4 ? "load the base in nf4 there, or " : "",
                     "merge the run instead (--to hf), whose weights are those of the training"));
  }
  if (model.format != ParameterFormat::kHuggingFace)
    report.notes.push_back(absl::StrCat("the base ", model.folder,
                                        " is not in Hugging Face's format, in which PEFT needs it: "
                                        "muster convert ",
                                        model.folder, " NEW --to hf"));
  return report;
}

absl::StatusOr<std::unique_ptr<ParameterSource>> open_source(const ConvertOptions& options) {
  if (!options.base.empty()) return open_merged(options.from, options.base);
  return ParameterSource::open(options.from, Verify::kChecksums, options.unused);
}

}  // namespace

absl::StatusOr<ConvertReport> convert(const ConvertOptions& options,
                                      const ConvertProgress& progress) {
  if (options.target == ConvertTarget::kPeft) return convert_adapters(options);
  const auto source = open_source(options);
  if (!source.ok()) return source.status();
  const ParameterDescription& model = (*source)->description();
  if (auto status = check_expected(model.model, options.from, options.expected); !status.ok())
    return status;
  const ConvertTarget target = target_of(options, model.format);
  if (auto status = check_options(options, target); !status.ok()) return status;
  auto tokenizer = find_tokenizer_files(model, options.tokenizer);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto written = write(**source, *tokenizer, options, target,
                             with_stop(options, progress, (*source)->parameters()));
  if (!written.ok()) return written.status();
  ConvertReport report{.from = model.format,
                       .target = target,
                       .from_folder = model.folder,
                       .to = options.to,
                       .parameters = (*source)->parameters(),
                       .stored = target == ConvertTarget::kMuster
                                     ? StoredType::kF32
                                     : options.stored.value_or(model.stored),
                       .files = written->files,
                       .bytes = written->bytes,
                       .rounded = written->rounded,
                       .has_tokenizer = !tokenizer_file(*tokenizer).empty(),
                       .tensors = model.tensors,
                       .notes = model.notes};
  report.notes.insert(report.notes.end(), tokenizer->notes.begin(), tokenizer->notes.end());
  return report;
}

}  // namespace muster::trainer

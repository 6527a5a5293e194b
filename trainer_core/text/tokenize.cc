#include "trainer_core/text/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/process/start_limits.h"
#include "common/process/usable_cpus.h"
#include "common/text/absl_view.h"
#include "trainer_core/text/ordered_pool.h"
#include "trainer_core/text/shard_set.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// Identifies the chat template of samples.
std::string sft_setting(const TokenizeOptions& options) {
  const auto& chat = options.encode.sft->chat;
  return chat ? absl::StrFormat("with a chat template of fingerprint %016x", chat->fingerprint())
              : "without a chat template";
}

RunIdentity identity_of(const TokenizeOptions& options, const Tokenizer& tokenizer,
                        const std::vector<InputFile>& files) {
  RunIdentity run;
  run.inputs = files;
  for (InputFile& file : run.inputs) {
    std::error_code error;
    const fs::path absolute = fs::absolute(file.path, error);
    if (!error) file.path = absolute.lexically_normal().string();
  }
  run.settings = {
      {"a tokenizer of fingerprint", absl::StrFormat("%016x", tokenizer.fingerprint())},
      {"--documents", std::string(name_of(kTextDocumentsNames, options.encode.read.documents))},
      {"--field", options.encode.read.field},
      {"--shard-tokens", absl::StrCat(options.shard_tokens)},
      {"an end-of-sequence id of",
       options.encode.add_eos ? absl::StrCat(tokenizer.eos_id()) : "none (--no-eos)"},
      {kBadDocumentsSetting,
       std::string(name_of(kBadDocumentsNames, options.encode.bad_documents))},
  };
  if (options.sft) {
    run.settings[options.dpo ? "--dpo" : "--sft"] = sft_setting(options);
    run.settings["--bos"] = options.sft_add_bos ? "set" : "not set";
  }
  return run;
}

// Loads the format of samples, if `options` have them, and checks that the tokenizer suits it.
absl::Status load_sft(const Tokenizer& tokenizer, TokenizeOptions& options) {
  if (!options.sft) return absl::OkStatus();
  auto format = std::make_shared<SftFormat>();
  format->add_bos = options.sft_add_bos;
  auto chat = chat::ChatTemplate::load(
      {options.tokenizer_path, options.chat_template, options.chat_template_name,
       sequence_token(tokenizer, /*begins=*/true), sequence_token(tokenizer, /*begins=*/false)});
  const bool is_named = !options.chat_template.empty() || !options.chat_template_name.empty();
  if (!chat.ok() && (is_named || !absl::IsNotFound(chat.status()))) return chat.status();
  if (!chat.ok()) {
    format->no_template = chat.status();
  } else if (tokenizer.type() == "tiktoken") {
    format->no_template = absl::FailedPreconditionError(
        "a tiktoken file has no special tokens, which chat templates need; use tokenizer.json");
  } else {
    format->chat = *std::move(chat);
  }
  if (options.sft_add_bos && begin_id(tokenizer, *format) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--bos: tokenizer ", options.tokenizer_path,
                                                   " has no beginning-of-sequence token"));
  }
  options.encode.sft = std::move(format);
  options.encode.pairs = options.dpo;
  return absl::OkStatus();
}

absl::Status no_documents(const std::vector<InputFile>& files, const DocumentCounts& counts) {
  const std::string what =
      files.size() == 1 ? files[0].path : absl::StrCat("the ", files.size(), " files");
  if (counts.skipped > 0) {
    return absl::InvalidArgumentError(absl::StrCat("nothing is left of ", what, ": all of its ",
                                                   counts.skipped,
                                                   " documents were skipped, the "
                                                   "first because ",
                                                   counts.skipped_examples[0]));
  }
  if (total_bytes(files) == 0)
    return absl::InvalidArgumentError(absl::StrCat(what, " is empty: there is no text in it"));
  return absl::InvalidArgumentError(absl::StrCat(what, " has nothing but blanks in it"));
}

// Adds instructions to the error of a run that can be resumed.
absl::Status with_hint(const absl::Status& status, size_t finished) {
  if (finished == 0 && !absl::IsCancelled(status)) return status;
  if (finished == 0) {
    return absl::CancelledError(
        absl::StrCat(status.message(),
                     " (no shard is finished yet: the same command starts from the beginning)"));
  }
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), " (", finished, finished == 1 ? " shard is" : " shards are",
                   " finished and kept: the same command resumes after them)"));
}

class Run {
 public:
  Run(const TokenizeOptions& options, const Tokenizer& tokenizer, std::vector<InputFile> files)
      : options_(options), tokenizer_(tokenizer), files_(std::move(files)) {
    starts_.push_back(0);
    for (const InputFile& file : files_) starts_.push_back(starts_.back() + file.bytes);
  }

  absl::StatusOr<TokenizeReport> run(ShardSet& shards, const TokenizeProgressFn& progress) const {
    TokenizeReport report;
    report.reused_shards = shards.reused_shards();
    report.reused_text_bytes = shards.counts().text_bytes;
    if (auto status = encode(shards, progress); !status.ok()) return status;
    if (shards.counts().text_bytes == 0) return no_documents(files_, shards.counts());
    auto index = shards.finish();
    if (!index.ok()) return index.status();
    index->has_pairs = options_.dpo;
    if (options_.encode.sft) index->begin_id = begin_id(tokenizer_, *options_.encode.sft);
    if (auto status = shards.publish(*index); !status.ok()) return status;
    report.index = *std::move(index);
    report.counts = shards.counts();
    for (size_t i = 0; i < files_.size(); ++i)
      report.inputs.push_back({files_[i].path, files_[i].bytes, shards.inputs()[i]});
    report.tokenizer = tokenizer_.description();
    report.tokenizer_file = tokenizer_.file();
    if (options_.sft && options_.encode.sft->chat)
      report.chat_template = options_.encode.sft->chat->path();
    report.notes = tokenizer_.notes();
    report.input_bytes = starts_.back();
    report.input_files = files_.size();
    return report;
  }

 private:
  absl::Status encode(ShardSet& shards, const TokenizeProgressFn& progress) const {
    const auto threads =
        static_cast<size_t>(options_.threads > 0 ? options_.threads : usable_cpus());
    if (auto status = try_threads("muster tokenize", threads, shell_limits()); !status.ok())
      return status;
    const uint64_t from = done(shards.position(), shards.file_position());
    ChunkStream stream(files_, options_.encode.read, shards.position());
    OrderedPool pool(
        stream,
        [this] { return std::make_unique<ChunkEncoder>(tokenizer_, files_, options_.encode); },
        threads);
    while (auto chunk = pool.next()) {
      if (options_.stop != nullptr && *options_.stop)
        return stopped(done(shards.position(), shards.file_position()));
      if (!chunk->status.ok()) return chunk->status;
      if (auto status = shards.append(*chunk); !status.ok()) return status;
      if (progress) progress({done(chunk->end, chunk->file_position), starts_.back(), from});
    }
    return absl::OkStatus();
  }

  absl::Status stopped(uint64_t bytes) const {
    return absl::CancelledError(
        absl::StrFormat("stopped after %d of %d bytes of the input (%.1f%%)", bytes, starts_.back(),
                        100.0 * static_cast<double>(bytes) / static_cast<double>(starts_.back())));
  }

  uint64_t done(const Position& position, uint64_t file_position) const {
    return std::min(starts_[std::min(position.file, files_.size())] + file_position,
                    starts_.back());
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  const std::vector<InputFile> files_;
  // For each file, total bytes of the files before it; then the total.
  std::vector<uint64_t> starts_;
};

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_tokenizer(const TokenizeOptions& options) {
  auto tokenizer = Tokenizer::load(options.tokenizer_path, options.encoding);
  if (!tokenizer.ok()) return tokenizer.status();
  if (options.encode.add_eos && (*tokenizer)->eos_id() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer ", options.tokenizer_path,
        " has no end-of-sequence id; --no-eos tokenises without one behind each document"));
  }
  return std::shared_ptr<const Tokenizer>(*std::move(tokenizer));
}

}  // namespace

absl::StatusOr<RunIdentity> run_identity(const TokenizeOptions& given) {
  TokenizeOptions options = given;
  const auto tokenizer = load_tokenizer(options);
  if (!tokenizer.ok()) return tokenizer.status();
  if (auto status = load_sft(**tokenizer, options); !status.ok()) return status;
  const auto found = find_input_files(options.inputs, options.format, options.split);
  if (!found.ok()) return found.status();
  return identity_of(options, **tokenizer, found->files);
}

absl::StatusOr<TokenizeReport> tokenize_files(const TokenizeOptions& given,
                                              const TokenizeProgressFn& progress) {
  TokenizeOptions options = given;
  const auto tokenizer = load_tokenizer(options);
  if (!tokenizer.ok()) return tokenizer.status();
  if (auto status = load_sft(**tokenizer, options); !status.ok()) return status;
  auto found = find_input_files(options.inputs, options.format, options.split);
  if (!found.ok()) return found.status();
  auto shards =
      ShardSet::open({options.output_directory, options.shard_tokens, options.restart, options.sft},
                     **tokenizer, identity_of(options, **tokenizer, found->files));
  if (!shards.ok()) return shards.status();
  auto report = Run(options, **tokenizer, found->files).run(**shards, progress);
  if (!report.ok()) {
    (*shards)->abandon();
    return with_hint(report.status(), (*shards)->finished_shards());
  }
  report->ignored = std::move(found->ignored);
  report->split = std::move(found->split);
  report->left_out = std::move(found->left_out);
  report->notes.insert(report->notes.end(), found->notes.begin(), found->notes.end());
  return report;
}

}  // namespace muster::trainer

#include "trainer_core/text/train_tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/process/start_limits.h"
#include "common/process/usable_cpus.h"
#include "common/random/fnv.h"
#include "trainer_core/data/sentencepiece_model.h"
#include "trainer_core/data/text_file.h"

namespace muster::trainer {
namespace {

// The maximum bytes of a sentence. Longer lines are cut between characters, so that a file without
// line breaks is not a single sentence of gigabytes.
constexpr size_t kSentenceBytesMax = 1 << 16;
// Sentences between two calls of the progress callback.
constexpr uint64_t kProgressPeriod = 4096;
// The log level with which SentencePiece logs all messages; its progress is available only in the
// log.
constexpr char kTalkative[] = "0";
// The number of pieces that need no merge: unk, bos, eos and the 256 bytes.
constexpr uint64_t kFixedPieces = 3 + 256;

// Returns the number after `name` in `line`, a line of SentencePiece's log.
std::optional<uint64_t> figure_after(std::string_view line, std::string_view name) {
  const size_t at = line.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const char* begin = line.data() + at + name.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// Reports progress, from the sentences that were read and from the library's log lines. If the log
// has no lines about merges, the last phase is kCounting.
class Reporter {
 public:
  Reporter(int32_t vocab_size, const TrainTokenizerProgressFn& progress)
      : vocab_size_(static_cast<uint64_t>(vocab_size)), progress_(progress) {}

  void has_read(uint64_t done, uint64_t total) const {
    report(done < total ? Phase::kReading : Phase::kCounting, done, total);
  }

  // The lines are "… Alphabet size=73" once, then every 20 merges "… Added: freq=31 size=3600 all=…
  // active=… piece=…".
  void on_line(std::string_view line) {
    if (const auto characters = figure_after(line, "Alphabet size=")) {
      const uint64_t fixed = kFixedPieces + *characters;
      merges_ = vocab_size_ > fixed ? vocab_size_ - fixed : 0;
    }
    if (line.find("Added: freq=") == std::string_view::npos) return;
    const auto merged = figure_after(line, " size=");
    if (merged && *merged <= merges_) report(Phase::kMerging, *merged, merges_);
  }

 private:
  using Phase = TrainTokenizerProgress::Phase;

  void report(Phase phase, uint64_t done, uint64_t total) const {
    if (progress_) progress_({phase, done, total});
  }

  const uint64_t vocab_size_;
  const TrainTokenizerProgressFn& progress_;
  uint64_t merges_ = 0;
};

// Yields every `stride`-th non-blank line of a text: a deterministic choice, unlike the library's
// own sampling.
class LineSampler {
 public:
  LineSampler(std::string_view text, uint64_t stride, Reporter& reporter)
      : text_(text), stride_(stride), reporter_(reporter) {}

  uint64_t sentences() const { return sentences_; }

  bool next(std::string& sentence) {
    for (uint64_t skip = 0; skip < stride_; ++skip) {
      if (next_line(sentence)) continue;
      reporter_.has_read(text_.size(), text_.size());
      return false;
    }
    ++sentences_;
    if (sentences_ % kProgressPeriod == 0) reporter_.has_read(position_, text_.size());
    return true;
  }

 private:
  bool next_line(std::string& sentence) {
    while (position_ < text_.size()) {
      size_t end = std::min(text_.find('\n', position_), text_.size());
      const bool cut = end - position_ > kSentenceBytesMax;
      if (cut) {
        end = position_ + kSentenceBytesMax;
        while ((static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80 && end > position_ + 1) --end;
      }
      std::string_view line = text_.substr(position_, end - position_);
      position_ = cut ? end : end + 1;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      sentence = line;
      return true;
    }
    return false;
  }

  std::string_view text_;
  uint64_t stride_;
  Reporter& reporter_;
  size_t position_ = 0;
  uint64_t sentences_ = 0;
};

int32_t threads_of(const TrainTokenizerOptions& options) {
  return options.threads > 0 ? options.threads : usable_cpus();
}

std::unordered_map<std::string, std::string> arguments(const TrainTokenizerOptions& options) {
  return {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"character_coverage", "0.99995"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"num_threads", std::to_string(threads_of(options))},
      {"max_sentence_length", std::to_string(2 * kSentenceBytesMax)},
      {"minloglevel", kTalkative},
      {"hard_vocab_limit", options.fewer_ok ? "false" : "true"},
  };
}

// Extracts what the user needs from SentencePiece's message ("… Please set it to a value <= 5813.")
// and drops the source positions before it. Its advice on a vocabulary that is too small names an
// option that Muster does not have: "Vocabulary size is smaller than required_chars. 256 vs 288.
// Increase vocab_size or decrease … --character_coverage".
std::string explain(const std::string& message) {
  constexpr std::string_view kTooSmall = "smaller than required_chars. ";
  constexpr std::string_view kVersus = " vs ";
  if (const size_t at = message.find(kTooSmall); at != std::string::npos) {
    const size_t versus = message.find(kVersus, at);
    const size_t number = versus == std::string::npos ? message.size() : versus + kVersus.size();
    const size_t end = std::min(message.find_first_not_of("0123456789", number), message.size());
    if (end > number)
      return absl::StrCat("vocab_size must be at least ", message.substr(number, end - number),
                          " for this text");
  }
  for (const std::string_view start : {"Vocabulary size", "vocab_size"}) {
    if (const size_t at = message.find(start); at != std::string::npos) return message.substr(at);
  }
  return message;
}

// Checks the output before the training, which may take long.
absl::Status check_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return absl::OkStatus();
  return errno_status(errno, absl::StrCat("cannot write ", path));
}

}  // namespace

absl::StatusOr<TrainTokenizerReport> train_tokenizer(const TrainTokenizerOptions& options,
                                                     const TrainTokenizerProgressFn& progress) {
  if (options.vocab_size <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size is ", options.vocab_size, "; it must be positive"));
  }
  if (auto status = check_output(options.output); !status.ok()) return status;
  auto file = TextFile::open(options.input);
  if (!file.ok()) return file.status();
  const std::string_view text = (*file)->text();
  TextCheck check;
  check.add(text, 0);
  if (auto status = check.status(options.input); !status.ok()) return status;

  const auto lines = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const uint64_t stride = lines / std::max<uint64_t>(options.sentences_max, 1) + 1;
  if (auto status = try_threads("muster train-tokenizer",
                                static_cast<uint64_t>(threads_of(options)), shell_limits());
      !status.ok())
    return status;
  Reporter reporter(options.vocab_size, progress);
  LineSampler sentences(text, stride, reporter);
  std::string model;
  const std::string error = train_sentencepiece(
      arguments(options), [&](std::string& sentence) { return sentences.next(sentence); },
      [&](std::string_view line) { reporter.on_line(line); }, model);
  if (!error.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot train a tokenizer with vocab_size=", options.vocab_size, " on ",
                     options.input, ": ", explain(error)));
  }
  const auto trained = SentencePieceModel::parse(model);
  if (trained == nullptr)
    return absl::InternalError("SentencePiece made a model that it cannot load");
  if (auto status =
          write_file_atomically(options.output, model, {.durability = Durability::kPowerLoss});
      !status.ok()) {
    return status;
  }
  return TrainTokenizerReport{trained->pieces(), sentences.sentences(), fnv1a(model)};
}

}  // namespace muster::trainer

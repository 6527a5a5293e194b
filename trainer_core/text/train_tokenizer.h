// Trains SentencePiece models: Kudo and Richardson, "SentencePiece: a simple and language
// independent subword tokenizer" (2018).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

struct TrainTokenizerOptions {
  std::string input;  // UTF-8 text file, one document a line
  int32_t vocab_size = 0;
  bool fewer_ok = false;  // accept fewer pieces than vocab_size if the text yields no more
  std::string output;     // the .model file to write
  int32_t threads = 0;    // 0: all cores
  // The number of sentences sampled from a large corpus; SentencePiece holds them in memory.
  uint64_t sentences_max = 2'000'000;
};

struct TrainTokenizerProgress {
  enum class Phase {
    kReading,   // in bytes of the text
    kCounting,  // of words; the library reports no progress
    kMerging,   // in pieces found
  };

  Phase phase = Phase::kReading;
  uint64_t done = 0;
  uint64_t total = 0;
};

// Called from time to time on the thread that called train_tokenizer().
using TrainTokenizerProgressFn = std::function<void(const TrainTokenizerProgress&)>;

struct TrainTokenizerReport {
  int32_t vocab_size = 0;  // less than requested only with fewer_ok
  uint64_t sentences = 0;  // lines read
  uint64_t fingerprint = 0;
};

// Trains a byte-pair model with byte fallback (like Llama's: any text can be encoded; ids 0 unk, 1
// bos, 2 eos) and writes it atomically. The same input gives the same model. InvalidArgument for an
// empty or binary file, and for a vocabulary that is larger than the text supports (the message has
// the largest possible one) or too small for its characters (the message has the smallest).
absl::StatusOr<TrainTokenizerReport> train_tokenizer(
    const TrainTokenizerOptions& options, const TrainTokenizerProgressFn& progress = nullptr);

}  // namespace muster::trainer

// Trains SentencePiece models (Kudo and Richardson, "SentencePiece: a simple and language
// independent subword tokenizer", 2018).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The options of a training.
struct TrainTokenizerOptions {
  std::string input;  // UTF-8 text file with one document per line
  int32_t vocab_size = 0;
  bool fewer_ok = false;  // accept a smaller vocabulary if the text does not support vocab_size
  std::string output;     // the .model file to write
  int32_t threads = 0;    // 0: all cores
  // The maximum number of sentences. SentencePiece holds them in memory; from a larger corpus they
  // are sampled.
  uint64_t sentences_max = 2'000'000;
};

// The phase of a training and its progress.
struct TrainTokenizerProgress {
  enum class Phase {
    kReading,   // reads sentences; progress in bytes of the text
    kCounting,  // counts words; the library reports no progress
    kMerging,   // merges pieces; progress in pieces found
  };

  Phase phase = Phase::kReading;
  uint64_t done = 0;
  uint64_t total = 0;
};

// Receives the progress from time to time, on the thread that called train_tokenizer().
using TrainTokenizerProgressFn = std::function<void(const TrainTokenizerProgress&)>;

// The result of a training.
struct TrainTokenizerReport {
  int32_t vocab_size = 0;    // smaller than requested only with fewer_ok
  uint64_t sentences = 0;    // lines read
  uint64_t fingerprint = 0;  // fingerprint of the written model (Tokenizer::fingerprint)
};

// Trains a byte-pair model and writes it atomically. Like Llama's models, it has the ids 0 unk, 1
// bos and 2 eos, and byte fallback, so that it can encode any text. The same input gives the same
// model. Returns InvalidArgument for an empty or binary file. Returns InvalidArgument for a
// vocabulary that is larger than the text supports or too small for the text's characters; the
// message contains the largest or smallest possible size.
absl::StatusOr<TrainTokenizerReport> train_tokenizer(
    const TrainTokenizerOptions& options, const TrainTokenizerProgressFn& progress = nullptr);

}  // namespace muster::trainer

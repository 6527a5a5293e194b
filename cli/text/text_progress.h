// Progress of the text commands for the progress bar. `start` is when the command began.
#pragma once

#include "cli/terminal/progress_bar.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::cli {

// Progress through `total` bytes of input, which is nearly all of the work. `from`: the bytes that
// were done before the start, which the pace excludes.
Progress reading_progress(uint64_t done, uint64_t total, Instant start, Instant now,
                          uint64_t from = 0);

// The phases of training a tokenizer. Only the merging phase has an estimate, and not from its
// beginning: the number of merges per second cannot be predicted, and the first merges, of the most
// frequent pairs, take far longer than later ones.
class TrainingProgress {
 public:
  explicit TrainingProgress(Instant start) : start_(start) {}
  Progress at(const trainer::TrainTokenizerProgress& report, Instant now);

 private:
  struct Mark {
    Instant time;
    uint64_t done = 0;
  };

  double merging_seconds_left(const trainer::TrainTokenizerProgress& report, Instant now);

  const Instant start_;
  std::optional<Instant> merging_since_;
  // The pace is measured from `older_` until now: over at least the last half of the time since
  // merging began. Only the first estimates are measured from its beginning.
  Mark older_, newer_;
};

}  // namespace muster::cli

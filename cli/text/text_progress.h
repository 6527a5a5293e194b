// What the text commands report, as the progress bar shows it. `start` is when the command began.
#pragma once

#include "cli/terminal/progress_bar.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::cli {

// Through `total` bytes of input; nearly all of the work when that is what the command does. `from`: the bytes that were done
// before the start, which say nothing about the pace.
Progress reading_progress(uint64_t done, uint64_t total, Instant start, Instant now,
                          uint64_t from = 0);

// The phases of training a tokenizer. Only the merging says how much is left, and that not at once: what it takes cannot
// be told before, and the first merges, of the most frequent pairs, take far longer than the later ones.
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
  // The pace counts from `older_`: over the last half of the time spent and some more, but not over its beginning.
  Mark older_, newer_;
};

}  // namespace muster::cli

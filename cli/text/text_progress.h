// Computes the progress of the text commands for the progress bar. `start`: the time at which the
// command began.
#pragma once

#include "cli/terminal/progress_bar.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::cli {

// Returns the progress of reading `total` bytes of input, which is nearly all of the work. `done`:
// bytes read so far. `from`: bytes that an earlier, interrupted run had read; the speed does not
// count them.
Progress reading_progress(uint64_t done, uint64_t total, Instant start, Instant now,
                          uint64_t from = 0);

// The progress of training a tokenizer. Only the merging phase has an estimate of the time left.
// The first merges, of the most frequent pairs, take far longer than later ones, so the estimate
// uses the recent speed.
class TrainingProgress {
 public:
  explicit TrainingProgress(Instant start) : start_(start) {}
  // Returns the progress at `now`, from the trainer's newest report.
  Progress at(const trainer::TrainTokenizerProgress& report, Instant now);

 private:
  struct Mark {
    Instant time;
    uint64_t done = 0;
  };

  double merging_seconds_left(const trainer::TrainTokenizerProgress& report, Instant now);

  const Instant start_;
  std::optional<Instant> merging_since_;
  // The speed is measured from `older_` to now, which covers at least the last half of the time
  // since merging began. Only the first estimates cover all of that time.
  Mark older_, newer_;
};

}  // namespace muster::cli

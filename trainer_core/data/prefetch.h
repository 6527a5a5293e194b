// Reads batches before they are used: a thread fills a few buffers while the trainer computes the
// current batch. Waits for pages that must be read from disk then overlap with the computation.
//
//   take(place) ── the next place in order ──▶ its buffer is filled, or will be shortly
//        └──────── any other place (a restart, an earlier batch) ──▶ discards the batches read
//                  ahead, and reads on from there
//
// A batch depends only on its place, so read-ahead never changes a result.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/batches.h"

namespace muster::trainer {

// The place of a micro-batch in the training: the step's first global sample, and the index of the
// micro-batch within the step.
struct BatchPlace {
  uint64_t first = 0;
  int32_t micro_batch = 0;

  friend bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

// The sizes of a rank's micro-batches, and their order: step by step, each with micro_batches
// micro-batches.
struct BatchSequence {
  int32_t sequences = 1;  // per micro-batch: B
  int32_t tokens = 0;     // per sequence: S, or the part of a context rank
  int32_t starts = 0;     // values of SequenceSpans::starts per sequence; 0: not packed
  int32_t micro_batches = 1;
  uint64_t samples_per_step = 0;  // over all ranks

  // Returns the place of the micro-batch after the one at `place`.
  BatchPlace after(const BatchPlace& place) const {
    if (place.micro_batch + 1 < micro_batches) return {place.first, place.micro_batch + 1};
    return {place.first + samples_per_step, 0};
  }
};

// The values of a micro-batch. `tokens`, `targets` and `weights` are (B, tokens); `starts` is (B,
// starts).
struct BatchBuffers {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> starts;
  std::vector<float> weights;
};

// Owns the thread that reads ahead. take() is called on one thread only. The destructor blocks
// until the read in progress is complete.
class Prefetcher {
 public:
  // Starts the thread, which begins to read at the first take().
  static std::unique_ptr<Prefetcher> start(std::unique_ptr<BatchSource> source,
                                           const BatchSequence& order);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the batch at `place`, valid until the next call. Blocks until it is read. Returns the
  // error of BatchSource::fill() if that failed.
  absl::StatusOr<const BatchBuffers*> take(const BatchPlace& place);

 private:
  struct Slot {
    BatchPlace place;
    BatchBuffers buffers;
    absl::Status status;
    bool filled = false;
  };

  Prefetcher(std::unique_ptr<BatchSource> source, const BatchSequence& order);
  void run();
  void fill(Slot& slot) const;
  bool has_work() const;

  std::unique_ptr<BatchSource> source_;  // used by thread_ only
  const BatchSequence order_;
  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable filled_;
  bool ending_ = false;
  Slot* filling_ = nullptr;                  // slot that thread_ fills without holding the mutex
  std::deque<std::unique_ptr<Slot>> ahead_;  // in the order of their places
  std::vector<std::unique_ptr<Slot>> free_;
  std::unique_ptr<Slot> current_;  // the batch that take() returned last; null: none yet
  std::thread thread_;
};

}  // namespace muster::trainer

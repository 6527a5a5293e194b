// Reads batches ahead of their use: a thread fills a few buffers while the current batch is
// computed, so that waits for mapped pages that are not in memory overlap with the computation.
//
//   take(place) ── the next place in order ──▶ its buffer is filled, or will be shortly
//        └──────── any other place (a restart, an earlier batch) ──▶ discards the batches read
//                  ahead, and reads on from there
//
// A batch depends only on its place, so the result does not depend on what was read ahead.
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

// The position of a micro-batch: its index within the step whose first global sample is `first`.
struct BatchPlace {
  uint64_t first = 0;
  int32_t micro_batch = 0;

  friend bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

// The sequence of batches that a rank reads, step by step.
struct BatchSequence {
  int32_t sequences = 1;  // per micro-batch: B
  int32_t tokens = 0;     // per sequence: S, or the rank's part of it
  int32_t starts = 0;     // per packed sequence
  int32_t micro_batches = 1;
  uint64_t samples_per_step = 0;  // over all ranks

  BatchPlace after(const BatchPlace& place) const {
    if (place.micro_batch + 1 < micro_batches) return {place.first, place.micro_batch + 1};
    return {place.first + samples_per_step, 0};
  }
};

// The values of a micro-batch: (B, tokens) each; starts: (B, starts).
struct BatchBuffers {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> starts;
  std::vector<float> weights;
};

// take() is called on one thread only. The destructor blocks until the read in progress is
// complete.
class Prefetcher {
 public:
  static std::unique_ptr<Prefetcher> start(std::unique_ptr<BatchSource> source,
                                           const BatchSequence& order);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the batch at `place`, valid until the next call. Blocks until it is read. Returns the
  // source's error if reading it failed.
  absl::StatusOr<const BatchBuffers*> take(const BatchPlace& place);

 private:
  struct Slot {
    BatchPlace place;
    BatchBuffers numbers;
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
  Slot* filling_ = nullptr;                  // filled by thread_ outside of the lock
  std::deque<std::unique_ptr<Slot>> ahead_;  // in the order in which they will be taken
  std::vector<std::unique_ptr<Slot>> free_;
  std::unique_ptr<Slot> current_;  // the caller's batch; null before the first
  std::thread thread_;
};

}  // namespace muster::trainer

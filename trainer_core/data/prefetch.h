// Reads the batches to come while the current one is being computed with: a thread fills a few buffers ahead, so that what it
// waits for (pages of a mapped shard that are not in memory) is waited for beside the computation.
//
//   take(place) ── the next place in order ──▶ its buffer is there, or will be in a moment
//        └──────── any other place (a restart, a look back) ──▶ what was read ahead is dropped, reading goes on from there
//
// The bytes of a batch depend on its place alone, so it does not matter what was read ahead.
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

// A micro-batch: of the step whose first global sample is `first`, the one with this number.
struct BatchPlace {
  uint64_t first = 0;
  int32_t micro_batch = 0;

  friend bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

// What a rank asks for, step by step.
struct BatchSequence {
  int32_t sequences = 1;  // of a micro-batch: B
  int32_t tokens = 0;     // of a sequence: S, or a rank's part of them
  int32_t starts = 0;     // of a packed sequence
  int32_t micro_batches = 1;
  uint64_t samples_per_step = 0;  // over all ranks

  BatchPlace after(const BatchPlace& place) const {
    if (place.micro_batch + 1 < micro_batches) return {place.first, place.micro_batch + 1};
    return {place.first + samples_per_step, 0};
  }
};

// The numbers of a micro-batch, (B, tokens) each, and starts (B, starts).
struct BatchBuffers {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> starts;
  std::vector<float> weights;
};

// take() from one thread. Destruction waits for the read that is under way.
class Prefetcher {
 public:
  static std::unique_ptr<Prefetcher> start(std::unique_ptr<BatchSource> source,
                                           const BatchSequence& order);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batch at `place`, valid until the next call. The source's error, if it has one there.
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

  std::unique_ptr<BatchSource> source_;  // the thread's
  const BatchSequence order_;
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::condition_variable filled_;
  bool ending_ = false;
  Slot* filling_ = nullptr;                  // by the thread, outside of the lock
  std::deque<std::unique_ptr<Slot>> ahead_;  // in the order in which they will be taken
  std::vector<std::unique_ptr<Slot>> free_;
  std::unique_ptr<Slot> current_;  // what the caller has; null before the first
  std::thread thread_;
};

}  // namespace muster::trainer

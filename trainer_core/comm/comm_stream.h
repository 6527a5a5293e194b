// Runs collectives concurrently with the computation: a background thread runs pieces of work in
// the order in which they were enqueued.
//
//   enqueue(work) ──▶ [ queue ] ──▶ thread: work(), work(), …     wait(ticket) ──▶ work is done
//
// All ranks must enqueue their collectives in the same order; they then run in the same order, so
// ranks cannot deadlock. After the first failure no further work runs, and every wait for later
// work returns the status of the failure.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <absl/status/status.h>

#include "common/time/time.h"

namespace muster::trainer {

// Identifies a piece of enqueued work. A wait for a ticket blocks until this work and all earlier
// work is done; a wait for a default ticket returns at once.
struct CommTicket {
  uint64_t number = 0;  // from 1, in the order of enqueue()
};

// Durations since the stream was started.
struct CommTimes {
  Duration busy{};     // time in which work ran
  Duration blocked{};  // time in which a caller waited for work

  // Returns the fraction of the communication time that overlapped with the computation, in [0, 1];
  // 1 if there was no communication.
  double hidden() const;
  CommTimes& operator+=(const CommTimes& other) {
    busy += other.busy;
    blocked += other.blocked;
    return *this;
  }
  friend CommTimes operator-(const CommTimes& a, const CommTimes& b) {
    return {a.busy - b.busy, a.blocked - b.blocked};
  }
};

// A background thread and its queue. Thread-safe.
class CommStream {
 public:
  using Work = std::function<absl::Status()>;

  // Returns the time for times(). Must be thread-safe.
  using Clock = std::function<Instant()>;

  // Starts the thread. `abort` must make the current and all later work fail, as
  // ProcessGroup::abort() does; null: no work waits for a peer.
  static std::unique_ptr<CommStream> start(std::function<void()> abort = nullptr,
                                           size_t queued_max = kQueuedMax,
                                           Clock clock = monotonic_now);
  // Discards work that has not begun, and blocks until the current work is done. If there is
  // unfinished work, this rank leaves in the middle of a collective; the destructor then first
  // calls `abort`, so that neither this rank nor its peers wait for each other.
  ~CommStream();
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  // Enqueues work. Objects that `work` uses must live until a wait for it has returned. Blocks
  // while the queue is full. `ready`, which may be empty, is called before `work` on the stream's
  // thread; it blocks until the computation has produced the inputs. Time in `ready` counts neither
  // as busy nor as blocked.
  CommTicket enqueue(Work work, std::function<void()> ready = nullptr);
  // Blocks until the work of `ticket` is done. Returns the first failure up to it.
  absl::Status wait(CommTicket ticket);
  // Blocks until all work that was enqueued so far is done. Returns the first failure.
  absl::Status wait_all();
  // Returns the first failure so far; OK if there is none.
  absl::Status status() const;

  // Returns the times since the start of the stream.
  CommTimes times() const;

 private:
  // Far more pieces of work than a step has; a queue that reaches this size is a bug.
  static constexpr size_t kQueuedMax = 1024;

  CommStream(size_t queued_max, Clock clock) : queued_max_(queued_max), now_(std::move(clock)) {}
  void run();
  // Returns the time spent in `ready` callbacks until `now`. Requires the lock.
  Duration readying(Instant now) const;

  const size_t queued_max_;
  const Clock now_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;   // work was enqueued, or the stream ends
  std::condition_variable finished_;  // work was finished, so the queue has room
  struct Queued {
    Work work;
    std::function<void()> ready;
  };

  std::deque<Queued> queue_;
  uint64_t enqueued_ = 0;
  uint64_t completed_ = 0;
  absl::Status status_;  // the first failure
  bool stopping_ = false;
  Duration readying_{};
  std::optional<Instant> ready_began_;  // start of the current `ready` call
  CommTimes times_;
  std::function<void()> abort_;
  std::thread thread_;
};

}  // namespace muster::trainer

// Runs collectives concurrently with the computation: one background thread runs work in the order
// in which it was enqueued.
//
//   enqueue(work) ──▶ [ queue ] ──▶ thread: work(), work(), …     wait(ticket) ──▶ its work is done
//
// Ranks that enqueue in the same order run in the same order, so no two ranks deadlock. After the
// first failure no further work runs, and every wait for later work returns that status.
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

#include "common/time.h"

namespace muster::trainer {

// Identifies enqueued work by its number. Waiting for a ticket waits for that work and all work
// before it; the default ticket waits for nothing.
struct CommTicket {
  uint64_t number = 0;
};

// Times since the stream started.
struct CommTimes {
  Duration busy{};     // in collectives
  Duration blocked{};  // waiting time: communication that the computation did not hide

  // Returns the fraction of communication time that overlapped the computation, 0 to 1; 1 without
  // any communication.
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

// Thread-safe.
class CommStream {
 public:
  using Work = std::function<absl::Status()>;

  // The clock that times() uses. Must be thread-safe.
  using Clock = std::function<Instant()>;

  // `abort` makes the current and all later work fail; it is usually the transport's. Null if no
  // work waits for a peer.
  static std::unique_ptr<CommStream> start(std::function<void()> abort = nullptr,
                                           size_t queued_max = kQueuedMax,
                                           Clock clock = monotonic_now);
  // Drops work that has not begun and waits for the current one. If any is left, this rank exits in
  // the middle of a collective: abort() is then called first, so that neither this rank nor a peer,
  // which may hang, waits for the other.
  ~CommStream();
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  // Objects that `work` uses must live until the work has been waited for. Blocks while the queue
  // is full. `ready`, which may be empty, blocks on the stream's thread until the computation has
  // produced the inputs; that time counts neither as collective time nor as blocked by peers.
  CommTicket enqueue(Work work, std::function<void()> ready = nullptr);
  absl::Status wait(CommTicket ticket);
  // Waits for all work enqueued so far.
  absl::Status wait_all();
  // Returns the first failure so far.
  absl::Status status() const;

  CommTimes times() const;

 private:
  // Far more than a step has layers; a queue that only grows is a bug.
  static constexpr size_t kQueuedMax = 1024;

  CommStream(size_t queued_max, Clock clock) : queued_max_(queued_max), now_(std::move(clock)) {}
  void run();
  // Returns the time spent in `ready` callbacks until `now`. Requires the lock.
  Duration readying(Instant now) const;

  const size_t queued_max_;
  const Clock now_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;   // work, or the end
  std::condition_variable finished_;  // a work, or there is room
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

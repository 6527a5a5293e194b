// Collectives beside the computation: one background thread per rank that runs them in the order in which they were handed in.
//
//   enqueue(work) ──▶ [ queue ] ──▶ thread: work(), work(), …        wait(ticket) ──▶ its work is done
//
// Ranks that enqueue in the same order run in the same order, so that no pair waits crosswise. The first failure is kept: what
// comes after it is not run, and every wait for it returns that status.
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

// What a wait waits for: the work that was enqueued as the number-th, and all before it. The default waits for nothing.
struct CommTicket {
  uint64_t number = 0;
};

// Since the start.
struct CommTimes {
  Duration busy{};     // in collectives
  Duration blocked{};  // of those who waited: what the computation did not hide

  // The part of the communication that went on beside the computation, 0 to 1; 1 when there was none.
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

// Any thread.
class CommStream {
 public:
  using Work = std::function<absl::Status()>;

  // What times() is measured by. Any thread.
  using Clock = std::function<Instant()>;

  // `abort` makes the current and all later work fail: that of the transport. None where work waits for nobody.
  static std::unique_ptr<CommStream> start(std::function<void()> abort = nullptr,
                                           size_t queued_max = kQueuedMax,
                                           Clock clock = monotonic_now);
  // Drops what has not begun and waits for what has. If anything is left, this rank goes in the middle of a collective: then it
  // aborts first, so that it waits for no peer, which may hang, and no peer waits for it.
  ~CommStream();
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  // What `work` uses lives until it is waited for. Waits while as many as there is room for are in the queue. `ready`, which may be empty, waits on the stream's
  // thread for the computation that the work needs: that is no time of a collective, and nobody is blocked by peers meanwhile.
  CommTicket enqueue(Work work, std::function<void()> ready = nullptr);
  absl::Status wait(CommTicket ticket);
  // For all that was enqueued before.
  absl::Status wait_all();
  // The first failure so far.
  absl::Status status() const;

  CommTimes times() const;

 private:
  static constexpr size_t kQueuedMax =
      1024;  // far more than a step has layers; a queue that only grows is a mistake

  CommStream(size_t queued_max, Clock clock) : queued_max_(queued_max), now_(std::move(clock)) {}
  void run();
  // In all that was waited for to be ready, until now. Under the lock.
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
  std::optional<Instant> ready_began_;  // of what is waited for now
  CommTimes times_;
  std::function<void()> abort_;
  std::thread thread_;
};

}  // namespace muster::trainer

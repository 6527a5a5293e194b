// Simulated time, and the only random generator. The scheduler runs events in the order of their
// times; events with the same time run in the order in which they were planned.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "common/time/time.h"

namespace muster::simulation {

class Scheduler {
 public:
  Instant now() const { return now_; }
  int64_t unix_ns() const { return kUnixNsAtStart + to_ns(now_); }

  void at(Instant when, std::function<void()> what) {
    queue_.push({std::max(when, now_), next_sequence_++, std::move(what)});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Runs the next event. If no event is planned until `end`, advances the time to `end` and returns
  // false.
  bool run_next(Instant end) {
    if (queue_.empty() || queue_.top().when > end) {
      now_ = end;
      return false;
    }
    // The queue returns const references; the function is moved out because it is popped next.
    Planned next = std::move(const_cast<Planned&>(queue_.top()));
    queue_.pop();
    now_ = next.when;
    next.what();
    return true;
  }

 private:
  static constexpr int64_t kUnixNsAtStart = 1'700'000'000'000'000'000;
  struct Planned {
    Instant when;
    uint64_t sequence;
    std::function<void()> what;

    bool operator<(const Planned& other) const {
      return std::pair(other.when, other.sequence) < std::pair(when, sequence);
    }
  };
  Instant now_ = instant_from_ns(1'000'000'000);
  uint64_t next_sequence_ = 0;
  std::priority_queue<Planned> queue_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}

  // Returns a number from 0 to n-1, which is the same on every platform (unlike the standard
  // library's distributions).
  uint64_t below(uint64_t n) { return generator_() % n; }
  bool chance(double probability) {
    return static_cast<double>(generator_() >> 11) * 0x1p-53 < probability;
  }
  Duration between_ms(uint64_t least, uint64_t most) {
    return std::chrono::milliseconds(least + below(most - least + 1));
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace muster::simulation

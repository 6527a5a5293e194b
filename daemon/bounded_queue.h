// A bounded queue for any number of producer and consumer threads. A full queue refuses items, so
// that a slow consumer does not fill the memory and the producer notices it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "common/time/time.h"

namespace muster::daemon {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t size_max) : size_max_(size_max) {}

  // Returns false, and leaves `item` unchanged, if the queue is full or closed.
  [[nodiscard]] bool try_push(T&& item) {
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= size_max_) return false;
      is_first = items_.empty();
      items_.push_back(std::move(item));
    }
    // One consumer is enough, because pop_all() takes all items: the one that was woken for the
    // first item takes the later ones, too.
    if (is_first) has_items_.notify_one();
    return true;
  }

  // Returns all queued items. Waits for the first item until `deadline`; without a deadline,
  // forever. Returns an empty deque if the deadline has passed, or if the queue is closed and
  // drained.
  std::deque<T> pop_all(std::optional<Instant> deadline) {
    std::deque<T> items;
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return closed_ || !items_.empty(); };
    if (deadline) {
      has_items_.wait_for(lock, *deadline - monotonic_now(), ready);
    } else {
      has_items_.wait(lock, ready);
    }
    items.swap(items_);
    return items;
  }

  // Refuses new items and wakes every waiter; queued items can still be popped.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    has_items_.notify_all();
    is_closed_.notify_all();
  }

  // Waits until the queue is closed, for at most `time`. Returns whether it is closed.
  bool wait_until_closed(Duration time) {
    std::unique_lock lock(mutex_);
    return is_closed_.wait_for(lock, time, [this] { return closed_; });
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  const size_t size_max_;
  mutable std::mutex mutex_;
  // Separate conditions: a notification for one consumer must not wake a thread that waits for the
  // end.
  std::condition_variable has_items_;
  std::condition_variable is_closed_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace muster::daemon

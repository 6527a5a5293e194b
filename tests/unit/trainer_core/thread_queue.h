// A device queue for tests without a device: a thread that executes the enqueued work in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/time/time.h"
#include "trainer_core/base/device_memory.h"

namespace muster::trainer {

class ThreadQueue final : public DeviceQueue {
 public:
  using Clock = std::function<Instant()>;
  // While `runs` is false no work begins. `runs` outlives the queue. `now` is the clock of
  // marks.
  explicit ThreadQueue(const std::atomic<bool>& runs, Clock now = monotonic_now)
      : runs_(runs), now_(std::move(now)), thread_([this] { run(); }) {}
  // Discards work that has not begun.
  ~ThreadQueue() override {
    stopping_ = true;
    changed_.notify_all();
    thread_.join();
  }

  void call(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }

  void* handle() const override { return const_cast<ThreadQueue*>(this); }
  std::shared_ptr<const DeviceMark> mark() override {
    auto mark = std::make_shared<Mark>();
    call([this, mark] {
      mark->at = now_();
      mark->done = true;
    });
    return mark;
  }
  void wait_for(const DeviceMark& mark) override {
    call([this, other = static_cast<const Mark&>(mark).shared_from_this()] {
      while (!other->is_done() && !stopping_) pause();
    });
  }

 private:
  struct Mark final : DeviceMark, std::enable_shared_from_this<Mark> {
    bool is_done() const override { return done; }
    void wait() const override {
      while (!is_done()) pause();
    }
    Duration since(const DeviceMark& earlier) const override {
      return at - static_cast<const Mark&>(earlier).at;
    }

    Instant at;
    std::atomic<bool> done{false};
  };

  static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

  void run() {
    while (!stopping_) {
      std::unique_lock lock(mutex_);
      if (queue_.empty() || !runs_) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
        continue;
      }
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
    }
  }

  const std::atomic<bool>& runs_;
  const Clock now_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

}  // namespace muster::trainer

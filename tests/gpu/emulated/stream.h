// The emulated device's streams, events, and captures from streams. Internal to runtime.cc and
// graphs.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

namespace emulated {

// A capture between cudaStreamBeginCapture and cudaStreamEndCapture: the recorded work, and the
// first error.
struct Capture {
  std::vector<Work> calls;
  cudaError_t error = cudaSuccess;

  cudaError_t fail(cudaError_t with) {
    if (error == cudaSuccess) error = with;
    return with;
  }
};
// Returns a reference to the calling thread's capture; null if there is none. If another thread
// enqueues work on the captured stream, that call fails.
Capture*& own_capture();
// Returns cudaSuccess if the calling thread captures nothing. Otherwise returns the error of a call
// that must not be made during a capture, because it cannot become part of the graph.
cudaError_t outside_of_captures();

// A queue of work. A thread that waits for the stream executes the work, one thread at a time; for
// callers that only query an event, the stream's own thread executes it.
class Stream {
 public:
  const int device = current_device;  // current device of the thread that created the stream

  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++enqueued_;
  }
  uint64_t enqueued() const {
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }
  bool has_done(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  // Executes work until `number` items are done in total. Holds no lock while it executes an item,
  // because the item may wait for work that other threads must execute.
  void run_until(uint64_t number) {
    std::unique_lock lock(mutex_);
    while (done_ < number) {
      if (runs_) {
        changed_.wait(lock);
        continue;
      }
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      runs_ = true;
      lock.unlock();
      // The device does not depend on which thread waits, and the thread's current device does not
      // change.
      const int waiting = std::exchange(current_device, device);
      work();
      current_device = waiting;
      lock.lock();
      runs_ = false;
      ++done_;
      changed_.notify_all();
    }
  }
  // Does the same as run_until(), but on the stream's own thread; returns at once.
  void begin_until(uint64_t number) {
    const std::lock_guard lock(mutex_);
    requested_ = std::max(requested_, number);
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }

  // Returns the capture of this stream; null if there is none.
  std::shared_ptr<Capture> capture() const {
    const std::lock_guard lock(mutex_);
    return capture_;
  }
  void set_capture(std::shared_ptr<Capture> capture) {
    const std::lock_guard lock(mutex_);
    capture_ = std::move(capture);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (done_ >= requested_) {
        changed_.wait(lock);
        continue;
      }
      const uint64_t number = requested_;
      lock.unlock();
      run_until(number);
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t enqueued_ = 0, done_ = 0, requested_ = 0;
  bool runs_ = false, stopping_ = false;
  std::shared_ptr<Capture> capture_;
  std::thread thread_;
};

// Enqueues work that is never captured, and that Graphs::enqueued does not count.
void do_later(Stream* stream, std::function<void()> work);
// Adds work to the capture of a captured stream.
cudaError_t record(Stream* stream, Work work);

// Time of queries of an event after which the stream starts to work, because a device works without
// a waiting thread, but not immediately.
constexpr auto kQueryDelay = std::chrono::milliseconds(4);

using Time = std::chrono::steady_clock::time_point;
// An event: a position in a stream's work.
struct Event {
  const int device = current_device;
  std::mutex mutex;
  std::shared_ptr<Stream> stream;  // stream in which the event was recorded last
  uint64_t number = 0;
  // The capture in which the event was recorded; null: none.
  std::shared_ptr<Capture> capture;
  std::optional<Time> first_query;  // time of the first query since the event was recorded
  // Time at which the stream reached the event.
  std::shared_ptr<Time> at = std::make_shared<Time>();
};

}  // namespace emulated

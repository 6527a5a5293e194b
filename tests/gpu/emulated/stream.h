// Streams and events of the emulated device, and captures from streams. Internal to runtime.cc and
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
// The calling thread's capture; null if there is none. Work that another thread enqueues on the
// stream meanwhile is that thread's error.
Capture*& own_capture();
// Returns the error of a call that a capturing thread must not make, because it would not become
// part of the graph.
cudaError_t outside_of_captures();

// A queue of work, of which the first `done` items have been executed. Threads that wait execute
// it, one at a time; a thread of the stream's own executes it for callers that only query.
class Stream {
 public:
  const int device = current_device;  // of the creating thread

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
  // Executes work until `number` items are done. Holds no lock during an item, because it may wait
  // for work that other threads must execute.
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
  // Executes it on the stream's own thread.
  void begin_until(uint64_t number) {
    const std::lock_guard lock(mutex_);
    requested_ = std::max(requested_, number);
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }

  // Returns null if nothing is captured.
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

// Enqueues work that is not captured and that no graph counts.
void do_later(Stream* stream, std::function<void()> work);
// Records work of a captured stream.
cudaError_t record(Stream* stream, Work work);

// A device works on its own, but not at once: queries of an event start its work after this time.
constexpr auto kQueryDelay = std::chrono::milliseconds(4);

using Time = std::chrono::steady_clock::time_point;
struct Event {
  const int device = current_device;
  std::mutex mutex;
  std::shared_ptr<Stream> stream;  // where it was recorded last
  uint64_t number = 0;
  // The capture in which it was recorded, as a point in a graph.
  std::shared_ptr<Capture> capture;
  std::optional<Time> first_query;  // first query since then
  // When the stream reached it.
  std::shared_ptr<Time> at = std::make_shared<Time>();
};

}  // namespace emulated

// Streams and events of the emulated device, and what is captured from a stream. Internal to runtime.cc and graphs.cc.
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

// Between cudaStreamBeginCapture and cudaStreamEndCapture: what the stream was told, and the first that it was told and should not have been.
struct Capture {
  std::vector<Work> calls;
  cudaError_t error = cudaSuccess;

  cudaError_t fail(cudaError_t with) {
    if (error == cudaSuccess) error = with;
    return with;
  }
};
// The calling thread's; null: none. It is another thread's error to tell its stream anything meanwhile.
Capture*& own_capture();
// Of a call that a thread which captures may not make: it would not be a part of the graph.
cudaError_t outside_of_captures();

// What it was told, in order; the first `done` of it is done. Who waits for it does it, one at a time; a thread of its own does it for who
// asks without waiting.
class Stream {
 public:
  const int device = current_device;  // of the thread that makes it

  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void tell(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++told_;
  }
  uint64_t told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  bool has_done(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  // Others may have other work of it done meanwhile, which this one may wait for: so nothing is held while something is done.
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
      // Whose thread it is that waits, the device does not see, and the thread nothing of the device's work.
      const int waiting = std::exchange(current_device, device);
      work();
      current_device = waiting;
      lock.lock();
      runs_ = false;
      ++done_;
      changed_.notify_all();
    }
  }
  // Not by who calls.
  void begin_until(uint64_t number) {
    const std::lock_guard lock(mutex_);
    wanted_ = std::max(wanted_, number);
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }

  // Null: nothing is captured.
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
      if (done_ >= wanted_) {
        changed_.wait(lock);
        continue;
      }
      const uint64_t number = wanted_;
      lock.unlock();
      run_until(number);
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t told_ = 0, done_ = 0, wanted_ = 0;
  bool runs_ = false, stopping_ = false;
  std::shared_ptr<Capture> capture_;
  std::thread thread_;
};

// The stream's work where nothing is captured, which no graph counts.
void do_later(Stream* stream, std::function<void()> work);
// What a stream that is captured is told.
cudaError_t record(Stream* stream, Work work);

// A device works by itself, though not at once: who only asks whether something is done is told so after a while.
constexpr auto kAskedFor = std::chrono::milliseconds(4);

using Time = std::chrono::steady_clock::time_point;
struct Event {
  const int device = current_device;
  std::mutex mutex;
  std::shared_ptr<Stream> stream;  // where it was recorded last
  uint64_t number = 0;
  std::shared_ptr<Capture> capture;  // where it was recorded, as a place in a graph
  std::optional<Time> asked;         // first since then
  std::shared_ptr<Time> at = std::make_shared<Time>();  // when the stream came to it
};

}  // namespace emulated

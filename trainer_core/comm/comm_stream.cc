#include "trainer_core/comm/comm_stream.h"

#include <algorithm>
#include <utility>

#include <absl/memory/memory.h>

#include "common/stacks/self_stacks.h"

namespace muster::trainer {

double CommTimes::hidden() const {
  if (busy <= Duration::zero()) return 1;
  return std::clamp(1 - to_seconds(blocked) / to_seconds(busy), 0.0, 1.0);
}

std::unique_ptr<CommStream> CommStream::start(std::function<void()> abort, size_t queued_max,
                                              Clock clock) {
  auto stream = absl::WrapUnique(new CommStream(queued_max, std::move(clock)));
  stream->abort_ = std::move(abort);
  stream->thread_ = std::thread([raw = stream.get()] { raw->run(); });
  return stream;
}

CommStream::~CommStream() {
  bool is_done = true;
  {
    const std::lock_guard lock(mutex_);
    is_done = completed_ == enqueued_;
    stopping_ = true;
    queue_.clear();
    arrived_.notify_all();
  }
  if (!is_done && abort_) abort_();
  thread_.join();
}

CommTicket CommStream::enqueue(Work work, std::function<void()> ready) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return queue_.size() < queued_max_; });
  queue_.push_back({std::move(work), std::move(ready)});
  arrived_.notify_one();
  return {++enqueued_};
}

absl::Status CommStream::wait(CommTicket ticket) {
  std::unique_lock lock(mutex_);
  if (completed_ < ticket.number && status_.ok()) {
    const Instant began = now_();
    const Duration readying_before = readying(began);
    finished_.wait(lock, [&] { return completed_ >= ticket.number || !status_.ok(); });
    const Instant now = now_();
    times_.blocked += now - began - (readying(now) - readying_before);
  }
  return completed_ >= ticket.number ? absl::OkStatus() : status_;
}

absl::Status CommStream::wait_all() {
  CommTicket last;
  {
    const std::lock_guard lock(mutex_);
    last.number = enqueued_;
  }
  return wait(last);
}

Duration CommStream::readying(Instant now) const {
  return readying_ + (ready_began_ ? now - *ready_began_ : Duration::zero());
}

absl::Status CommStream::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

CommTimes CommStream::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void CommStream::run() {
  const SelfStackThread answers;
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    if (status_.ok()) {
      if (next.ready) {
        ready_began_ = now_();
        lock.unlock();
        next.ready();
        lock.lock();
        readying_ = readying(now_());
        ready_began_.reset();
      }
      lock.unlock();
      const Instant began = now_();
      absl::Status status = next.work();
      const Duration took = now_() - began;
      next = {};  // destroys the work's captures before its waiter resumes
      lock.lock();
      times_.busy += took;
      if (status.ok()) {
        ++completed_;
      } else {
        status_ = std::move(status);
      }
    }
    finished_.notify_all();
  }
}

}  // namespace muster::trainer

#include "serve/engine_thread.h"

#include "trainer_core/base/check.h"

namespace muster::serve {

EngineThread::EngineThread(std::unique_ptr<trainer::Engine> engine,
                           std::function<void(std::vector<CallEvent>)> deliver)
    : engine_(std::move(engine)), deliver_(std::move(deliver)), stats_(engine_->stats()) {
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EngineThread::submit(CallId call, trainer::GenerationRequest request) {
  {
    const std::lock_guard lock(mutex_);
    submitted_.emplace_back(call, std::move(request));
  }
  changed_.notify_one();
}

void EngineThread::cancel(CallId call) {
  {
    const std::lock_guard lock(mutex_);
    // Requests come and go faster than steps, so those that have not begun are removed at once.
    const auto is_it = [&](const auto& one) { return one.first == call; };
    if (std::erase_if(submitted_, is_it) > 0) return;
    cancelled_.push_back(call);
  }
  changed_.notify_one();
}

trainer::EngineStats EngineThread::stats() const {
  const std::lock_guard lock(mutex_);
  trainer::EngineStats stats = stats_;
  stats.waiting += static_cast<int32_t>(submitted_.size());
  return stats;
}

bool EngineThread::take_commands() {
  std::vector<std::pair<CallId, trainer::GenerationRequest>> submitted;
  std::vector<CallId> cancelled;
  {
    std::unique_lock lock(mutex_);
    stats_ = engine_->stats();
    changed_.wait(lock, [&] {
      return stopping_ || !submitted_.empty() || !cancelled_.empty() || !engine_->is_idle();
    });
    if (stopping_) return false;
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (auto& [call, request] : submitted) {
    const auto id = engine_->submit(std::move(request));
    MUSTER_CHECK(id.ok()) << "a request that was not checked: " << id.status();
    calls_[*id] = call;
    requests_[call] = *id;
  }
  for (const CallId call : cancelled) {
    const auto found = requests_.find(call);
    if (found == requests_.end()) continue;  // it has ended
    engine_->cancel(found->second);
    calls_.erase(found->second);
    requests_.erase(found);
  }
  return true;
}

void EngineThread::run() {
  while (take_commands()) {
    std::vector<CallEvent> events;
    for (trainer::GenerationEvent& event : engine_->step()) {
      const auto call = calls_.find(event.request);
      if (event.end) {
        requests_.erase(call->second);
        events.push_back({call->second, std::move(event)});
        calls_.erase(call);
      } else {
        events.push_back({call->second, std::move(event)});
      }
    }
    if (!events.empty()) deliver_(std::move(events));
  }
}

}  // namespace muster::serve

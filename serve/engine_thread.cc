#include "serve/engine_thread.h"

#include <chrono>

#include "trainer_core/base/check.h"

namespace muster::serve {

namespace {

// The interval at which an idle engine checks its ranks.
constexpr std::chrono::seconds kRankCheck{1};

}  // namespace

EngineThread::EngineThread(std::unique_ptr<trainer::Engine> engine, EngineHandlers handlers)
    : engine_(std::move(engine)), handlers_(std::move(handlers)), stats_(engine_->stats()) {
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  // The results of the step that runs are not needed, and a rank may not respond.
  engine_->decoder().abort();
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

bool EngineThread::wait(std::unique_lock<std::mutex>& lock) {
  const auto is_ready = [&] {
    return stopping_ || !submitted_.empty() || !cancelled_.empty() || !engine_->is_idle();
  };
  if (!engine_->decoder().has_ranks()) {
    changed_.wait(lock, is_ready);
    return true;
  }
  while (!changed_.wait_for(lock, kRankCheck, is_ready)) {
    if (const absl::Status lost = engine_->decoder().check_ranks(); !lost.ok()) {
      handlers_.fail(lost);
      return false;
    }
  }
  return true;
}

bool EngineThread::take_commands() {
  std::vector<std::pair<CallId, trainer::GenerationRequest>> submitted;
  std::vector<CallId> cancelled;
  {
    std::unique_lock lock(mutex_);
    stats_ = engine_->stats();
    if (!wait(lock) || stopping_) return false;
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
    auto computed = engine_->step();
    if (!computed.ok()) return handlers_.fail(computed.status());
    std::vector<CallEvent> events;
    for (trainer::GenerationEvent& event : *computed) {
      const auto call = calls_.find(event.request);
      if (event.end) {
        requests_.erase(call->second);
        events.push_back({call->second, std::move(event)});
        calls_.erase(call);
      } else {
        events.push_back({call->second, std::move(event)});
      }
    }
    if (!events.empty()) handlers_.deliver(std::move(events));
  }
}

}  // namespace muster::serve

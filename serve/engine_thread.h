// Runs an engine on its own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer_core/generation/engine.h"

namespace muster::serve {

// Identifies a request, also before the engine has received it.
using CallId = uint64_t;

struct CallEvent {
  CallId call = 0;
  trainer::GenerationEvent event;
};

// Both are called on the engine's thread and must not block.
struct EngineHandlers {
  std::function<void(std::vector<CallEvent>)> deliver;  // the events of each step
  // Called once if a rank of the model is lost. Nothing is computed afterwards.
  std::function<void(const absl::Status&)> fail;
};

class EngineThread {
 public:
  EngineThread(std::unique_ptr<trainer::Engine> engine, EngineHandlers handlers);
  // Joins the thread, after the current step. A step that waits for another rank is aborted.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // The functions below are thread-safe.

  // Returns the error of a prompt that can never be computed.
  absl::Status check(std::span<const int32_t> prompt) const { return engine_->check(prompt); }
  int32_t context() const { return engine_->context(); }
  // Adds a request whose prompt has passed check().
  void submit(CallId call, trainer::GenerationRequest request);
  // Ends a request. Events that are already on their way are still delivered.
  void cancel(CallId call);
  // Returns the engine's figures after the last step.
  trainer::EngineStats stats() const;

 private:
  void run();
  // Returns false if the thread shall end.
  bool take_commands();
  // Waits for commands or work. Returns false if a rank was lost meanwhile.
  bool wait(std::unique_lock<std::mutex>& lock);

  std::unique_ptr<trainer::Engine> engine_;
  EngineHandlers handlers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                                                 // under mutex_
  std::vector<std::pair<CallId, trainer::GenerationRequest>> submitted_;  // under mutex_
  std::vector<CallId> cancelled_;                                         // under mutex_
  trainer::EngineStats stats_;                                            // under mutex_
  // On the engine's thread:
  std::unordered_map<trainer::RequestId, CallId> calls_;
  std::unordered_map<CallId, trainer::RequestId> requests_;
  std::thread thread_;
};

}  // namespace muster::serve

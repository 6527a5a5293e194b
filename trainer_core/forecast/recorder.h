// Collects the work of a step in a trace (step_recorder.h).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

struct MemoryRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool is_only_read = false;  // the operation may not write the tensor

  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

inline MemoryRange range_of(const Tensor& tensor) {
  const auto* const begin = static_cast<const std::byte*>(tensor.data);
  return {.begin = begin, .end = begin + (begin == nullptr ? 0 : tensor.bytes())};
}

// Adds work to a trace. The computation's thread and those of communication streams call it.
class StepRecorder {
 public:
  // Adds a work of the computation, which waits for the communication that accesses its memory.
  TracedWork& compute(TracedWork work, std::span<const MemoryRange> accesses) {
    std::unique_lock lock(mutex_);
    // All communication that was begun earlier is in the trace, so that the result does not depend
    // on the threads' speed.
    settled_.wait(lock, [this] { return pending_ == 0; });
    work.phase = phase_;
    work.layer = layer_;
    std::erase_if(unsettled_, [&](const Unsettled& other) {
      const bool waits = std::ranges::any_of(accesses, [&](const MemoryRange& range) {
        return range.meets(other.output) || (!range.is_only_read && range.meets(other.input));
      });
      if (waits) work.waits.push_back(other.index);
      return waits;
    });
    auto& all = trace_.of(StepStream::kCompute);
    all.push_back(std::move(work));
    return all.back();
  }

  // Adds a collective of another stream. It begins after the marker for which its thread has
  // waited last.
  void communicate(StepStream stream, TracedWork work, MemoryRange input, MemoryRange output) {
    const std::lock_guard lock(mutex_);
    work.after = ready_after_;
    auto& all = trace_.of(stream);
    unsettled_.push_back({{stream, static_cast<int32_t>(all.size())}, input, output});
    all.push_back(std::move(work));
    --pending_;
    settled_.notify_all();
  }

  // Announces a communicate() of another thread, and returns the position after which it begins.
  int32_t expect_communication() {
    const std::lock_guard lock(mutex_);
    ++pending_;
    return static_cast<int32_t>(trace_.of(StepStream::kCompute).size());
  }

  int32_t group(CollectiveGroup group) {
    const std::lock_guard lock(mutex_);
    trace_.groups.push_back(std::move(group));
    return static_cast<int32_t>(trace_.groups.size()) - 1;
  }

  // Number of works of the computation so far.
  int32_t position() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int32_t>(trace_.of(StepStream::kCompute).size());
  }
  static void set_ready_after(int32_t position) { ready_after_ = position; }

  void begin_pass() { trace_.passes.push_back({position()}); }
  void begin_tail() { trace_.tail = position(); }

  void begin_range(std::string_view name, int64_t number) {
    const std::lock_guard lock(mutex_);
    ranges_.push_back({phase_, layer_});
    if (name == "forward") phase_ = StepPhase::kForward;
    if (name == "backward") phase_ = StepPhase::kBackward;
    if (name == "recompute") phase_ = StepPhase::kRecompute;
    if (name == "update" || name == "reduce") phase_ = StepPhase::kUpdate;
    if (name == "layer") layer_ = static_cast<int32_t>(number);
  }
  void end_range() {
    const std::lock_guard lock(mutex_);
    phase_ = ranges_.back().phase;
    layer_ = ranges_.back().layer;
    ranges_.pop_back();
  }

  StepTrace take() { return std::move(trace_); }

 private:
  // A collective for which the computation has not waited yet.
  struct Unsettled {
    WorkIndex index;
    MemoryRange input, output;
  };
  struct OuterRange {
    StepPhase phase;
    int32_t layer;
  };

  inline static thread_local int32_t ready_after_ = 0;

  // Guards all members, with an exception: the computation's thread changes the passes, the tail
  // and its own works without the lock, because no other thread accesses them.
  mutable std::mutex mutex_;
  StepTrace trace_;
  std::vector<Unsettled> unsettled_;
  std::condition_variable settled_;  // no communication is pending
  int pending_ = 0;                  // communication that was announced, but is not in the trace
  std::vector<OuterRange> ranges_;
  StepPhase phase_ = StepPhase::kForward;
  int32_t layer_ = -1;
};

class RecordingMark final : public DeviceMark {
 public:
  explicit RecordingMark(int32_t position) : position_(position) {}
  bool is_done() const override { return true; }
  void wait() const override { StepRecorder::set_ready_after(position_); }
  Duration since(const DeviceMark&) const override { return {}; }

 private:
  const int32_t position_;
};

class RecordingQueue final : public DeviceQueue {
 public:
  explicit RecordingQueue(StepRecorder& recorder) : recorder_(recorder) {}
  void* handle() const override { return nullptr; }
  std::shared_ptr<const DeviceMark> mark() override {
    return std::make_shared<RecordingMark>(recorder_.expect_communication());
  }
  void wait_for(const DeviceMark&) override {}

 private:
  StepRecorder& recorder_;
};

}  // namespace muster::trainer

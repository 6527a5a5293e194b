// An op table that forwards every call to another one and measures how long it takes, in the order
// of the calls (device_bench.h).
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "common/time/time.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// A call of an operation. The names are those of TracedWork (step_trace.h).
struct TimedCall {
  const char* name = "";
  double seconds = 0;
};

// Waits for the backend's work after each operation, so that a call's time is that of its work on
// any device.
class OpTimer final : public Ops {
 public:
  // Requires that `inner` outlives the object.
  explicit OpTimer(Ops& inner) : inner_(inner) {}

  // Returns the calls since the last call of this function.
  std::vector<TimedCall> take() { return std::exchange(calls_, {}); }

  std::string_view name() const override { return inner_.name(); }
  void upload(const void* from, const Tensor& to) override { inner_.upload(from, to); }
  void download(const Tensor& from, void* to) override { inner_.download(from, to); }
  void synchronize() override { inner_.synchronize(); }
  std::shared_ptr<DeviceQueue> queue() override { return inner_.queue(); }
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override {
    const Call call(*this, "matmul");
    inner_.matmul(a, transpose_a, b, transpose_b, c, accumulate);
  }
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override {
    const Call call(*this, "matmul");
    inner_.fused_matmul(a, transpose_a, b, transpose_b, c, epilogue);
  }

 private:
  // Measures the time from its construction until the backend has done the work of its scope.
  class Call {
   public:
    Call(OpTimer& timer, const char* name) : timer_(timer), name_(name), begin_(monotonic_now()) {}
    ~Call() {
      timer_.inner_.synchronize();
      timer_.calls_.push_back({name_, to_seconds(monotonic_now() - begin_)});
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OpTimer& timer_;
    const char* const name_;
    const Instant begin_;
  };

#define MUSTER_OP(result, name, parameters, arguments) \
  result do_##name parameters override {               \
    const Call call(*this, #name);                     \
    return inner_.name arguments;                      \
  }
#include "trainer_core/ops/op_table.inc"

  Ops& inner_;
  std::vector<TimedCall> calls_;
};

// A backend whose operations an OpTimer measures. Graphs of calls are not replayed.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::shared_ptr<Backend> inner)
      : inner_(std::move(inner)), timer_(inner_->ops()) {}

  OpTimer& timer() { return timer_; }

  Ops& ops() override { return timer_; }
  const DeviceMemory& memory() const override { return inner_->memory(); }
  int threads() const override { return inner_->threads(); }
  std::string description() const override { return inner_->description(); }
  int multiprocessors() const override { return inner_->multiprocessors(); }

 private:
  std::shared_ptr<Backend> inner_;
  OpTimer timer_;
};

}  // namespace muster::trainer

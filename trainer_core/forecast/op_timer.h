// An op table that forwards every call to another one and measures how long it takes, in the order
// of the calls: for device_bench.h and bench/cpu_train.
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
  // The sizes of a "matmul", (m, k) times (k, n) after the transposes; otherwise 0.
  int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  bool accumulates = false;
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
    const Call call(*this, gemm_call(a, transpose_a, transpose_b, c, accumulate));
    inner_.matmul(a, transpose_a, b, transpose_b, c, accumulate);
  }
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override {
    const Call call(*this, gemm_call(a, transpose_a, transpose_b, c, epilogue.accumulate));
    inner_.fused_matmul(a, transpose_a, b, transpose_b, c, epilogue);
  }

 private:
  // Measures the time from its construction until the backend has done the work of its scope.
  class Call {
   public:
    Call(OpTimer& timer, const char* name) : Call(timer, TimedCall{.name = name}) {}
    Call(OpTimer& timer, const TimedCall& call)
        : timer_(timer), call_(call), begin_(monotonic_now()) {}
    ~Call() {
      timer_.inner_.synchronize();
      call_.seconds = to_seconds(monotonic_now() - begin_);
      timer_.calls_.push_back(call_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OpTimer& timer_;
    TimedCall call_;
    const Instant begin_;
  };

  static TimedCall gemm_call(const Tensor& a, Transpose transpose_a, Transpose transpose_b,
                             const Tensor& c, Accumulate accumulate) {
    return {.name = "matmul",
            .m = c.dim(0),
            .n = c.dim(1),
            .k = a.dim(transpose_a == Transpose::kYes ? 0 : 1),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulates = accumulate == Accumulate::kYes};
  }

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

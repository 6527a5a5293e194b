// An op table that forwards every call to another one and measures it, to show how much time of a
// training step each operation takes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/time/time.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The calls of one operation.
struct OpTime {
  double seconds = 0;
  double flops = 0;  // floating-point operations; counted for GEMMs only
  int64_t calls = 0;
};

// Counts a call, and adds the time of the object's scope, to `into`.
class Stopwatch {
 public:
  explicit Stopwatch(OpTime& into, double flops = 0) : into_(into), start_(monotonic_now()) {
    into.flops += flops;
    ++into.calls;
  }
  ~Stopwatch() { into_.seconds += to_seconds(monotonic_now() - start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  OpTime& into_;
  Instant start_;
};

// Measures only the duration of the call itself: correct for a backend whose calls return when the
// work is done (the CPU's).
class TimedOps : public Ops {
 public:
  // Requires that `inner` outlives the object.
  explicit TimedOps(Ops& inner) : inner_(inner) {}

  const std::map<std::string, OpTime>& times() const { return times_; }
  void reset() { times_.clear(); }

  std::string_view name() const override { return inner_.name(); }
  void upload(const void* from, const Tensor& to) override;
  void download(const Tensor& from, void* to) override;
  void synchronize() override { inner_.synchronize(); }
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override;

 private:
#define MUSTER_OP(result, name, parameters, arguments) \
  result do_##name parameters override {               \
    const Stopwatch stopwatch(times_[#name]);          \
    return inner_.name arguments;                      \
  }
#include "trainer_core/ops/op_table.inc"

  Ops& inner_;
  std::map<std::string, OpTime> times_;
};

}  // namespace muster::trainer

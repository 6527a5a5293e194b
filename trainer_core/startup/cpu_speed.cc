#include "trainer_core/startup/cpu_speed.h"

#include <time.h>

#include <algorithm>
#include <limits>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {
namespace {

// A layer large enough that its GEMMs resemble those of real models, small enough for a second.
constexpr int64_t kTokens = 512, kIn = 512, kOut = 1024;
constexpr int kTries = 9;

// The tensors of a dense layer whose activations have one type. Weights and their gradients are
// fp32, as in training.
struct Layer {
  Tensor x, y;       // (tokens, in), (tokens, out)
  Tensor w, w_grad;  // (out, in)
};

// Returns the CPU time of the calling thread.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(Ops& ops, const Layer& layer) {
  const double start = thread_seconds();
  ops.matmul(layer.x, Transpose::kNo, layer.w, Transpose::kYes, layer.y, Accumulate::kNo);
  ops.matmul(layer.y, Transpose::kNo, layer.w, Transpose::kNo, layer.x, Accumulate::kNo);
  ops.matmul(layer.y, Transpose::kYes, layer.x, Transpose::kNo, layer.w_grad, Accumulate::kNo);
  ops.synchronize();
  return thread_seconds() - start;
}

}  // namespace

CpuSpeed measure_cpu_speed() {
  const auto backend = cpu_backend(1);
  Ops& ops = backend->ops();
  MemoryPlan plan;
  const auto add = [&](DType dtype, int64_t elements) {
    return plan.add("layer", MemoryCategory::kWorkspace,
                    static_cast<size_t>(elements) * dtype_bytes(dtype));
  };
  constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
  const BufferId w = add(DType::kF32, kOut * kIn), w_grad = add(DType::kF32, kOut * kIn);
  const BufferId xs[] = {add(kTypes[0], kTokens * kIn), add(kTypes[1], kTokens * kIn)};
  const BufferId ys[] = {add(kTypes[0], kTokens * kOut), add(kTypes[1], kTokens * kOut)};
  const Arena arena(plan);
  double best[2];
  std::ranges::fill(best, std::numeric_limits<double>::infinity());
  for (int i = 0; i < kTries; ++i) {
    for (size_t type = 0; type < 2; ++type) {
      const Layer layer{.x = Tensor::of(kTypes[type], arena.buffer(xs[type]), {kTokens, kIn}),
                        .y = Tensor::of(kTypes[type], arena.buffer(ys[type]), {kTokens, kOut}),
                        .w = Tensor::of(DType::kF32, arena.buffer(w), {kOut, kIn}),
                        .w_grad = Tensor::of(DType::kF32, arena.buffer(w_grad), {kOut, kIn})};
      // Resets the input, so that results do not grow to infinity over the measurements.
      ops.fill(layer.x, 1e-3F);
      ops.fill(layer.w, 1e-3F);
      best[type] = std::min(best[type], seconds_of(ops, layer));
    }
  }
  return {.float32_seconds = best[0], .bfloat16_seconds = best[1]};
}

}  // namespace muster::trainer

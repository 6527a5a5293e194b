#include "trainer_core/ops/gemm_peak.h"

#include <algorithm>
#include <limits>

#include "common/time.h"
#include "trainer_core/base/memory_plan.h"

namespace muster::trainer {

double measure_gemm_peak_tflops(Ops& ops) {
  constexpr int64_t kSize =
      512;  // three matrices of 1 MiB: cache-resident, yet long enough to time
  constexpr int kTries = 9;
  constexpr size_t kMatrixBytes = kSize * kSize * sizeof(float);
  MemoryPlan plan;
  const BufferId ids[] = {plan.add("a", MemoryCategory::kWorkspace, kMatrixBytes),
                          plan.add("b", MemoryCategory::kWorkspace, kMatrixBytes),
                          plan.add("c", MemoryCategory::kWorkspace, kMatrixBytes)};
  const Arena arena(plan);
  const Tensor a = Tensor::f32(arena.f32(ids[0]), {kSize, kSize});
  const Tensor b = Tensor::f32(arena.f32(ids[1]), {kSize, kSize});
  const Tensor c = Tensor::f32(arena.f32(ids[2]), {kSize, kSize});
  ops.fill(a, 0.5F);
  ops.fill(b, 0.25F);

  double best_seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    const Instant start = monotonic_now();
    ops.matmul(a, Transpose::kNo, b, Transpose::kNo, c, Accumulate::kNo);
    ops.synchronize();
    best_seconds = std::min(best_seconds, to_seconds(monotonic_now() - start));
  }
  return 2.0 * kSize * kSize * kSize / best_seconds * 1e-12;
}

}  // namespace muster::trainer

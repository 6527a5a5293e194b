#include "trainer_core/ops/gemm_peak.h"

#include <algorithm>
#include <limits>

#include "common/time.h"
#include "trainer_core/base/memory_plan.h"

namespace muster::trainer {

double measure_gemm_peak_tflops(Ops& ops, DType dtype) {
  constexpr int64_t kSize =
      512;  // three matrices of at most 1 MiB: cache-resident, yet long enough to time
  constexpr int kTries = 9;
  const size_t bytes = kSize * kSize * dtype_bytes(dtype);
  MemoryPlan plan;
  const BufferId ids[] = {plan.add("a", MemoryCategory::kWorkspace, bytes),
                          plan.add("b", MemoryCategory::kWorkspace, bytes),
                          plan.add("c", MemoryCategory::kWorkspace, bytes)};
  const Arena arena(plan);
  const Tensor a = Tensor::of(dtype, arena.buffer(ids[0]), {kSize, kSize});
  const Tensor b = Tensor::of(dtype, arena.buffer(ids[1]), {kSize, kSize});
  const Tensor c = Tensor::of(dtype, arena.buffer(ids[2]), {kSize, kSize});
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

#include "trainer_core/ops/gemm_peak.h"

#include <algorithm>
#include <limits>

#include "common/time/time.h"
#include "trainer_core/base/memory_plan.h"

namespace muster::trainer {
namespace {

constexpr int64_t kSizeMin = 16;
constexpr int kTries = 9;
constexpr double kSecondsMax = 1;
constexpr double kLongEnough = 2e-3;

size_t bytes_of_three(DType dtype, int64_t size) {
  return 3 * static_cast<size_t>(size * size) * dtype_bytes(dtype);
}

// Returns the time of one GEMM, the best of `tries` or of those that begin in time, as far as
// `watch` accepts them; infinity if it accepts none. `room` holds three matrices.
double product_seconds(Ops& ops, DType dtype, int64_t size, int tries, void* room,
                       const GemmWatch* watch = nullptr) {
  const auto matrix = [&](size_t i) {
    return Tensor::of(dtype, static_cast<char*>(room) + i * bytes_of_three(dtype, size) / 3,
                      {size, size});
  };
  const Tensor a = matrix(0), b = matrix(1), c = matrix(2);
  ops.fill(a, 0.5F);
  ops.fill(b, 0.25F);
  ops.synchronize();

  double best_seconds = std::numeric_limits<double>::infinity();
  const Instant first = monotonic_now();
  for (int i = 0; i < tries; ++i) {
    if (to_seconds(monotonic_now() - first) > kSecondsMax) break;
    if (watch != nullptr) watch->begin();
    const Instant start = monotonic_now();
    ops.matmul(a, Transpose::kNo, b, Transpose::kNo, c, Accumulate::kNo);
    ops.synchronize();
    const double seconds = to_seconds(monotonic_now() - start);
    if (watch == nullptr || watch->counts()) best_seconds = std::min(best_seconds, seconds);
  }
  return best_seconds;
}

// Returns the peak for the smallest GEMMs that are long enough to time, or of `size_max`; both are
// powers of two.
double peak_of_sizes(Ops& ops, DType dtype, int64_t size_max, void* room, const GemmWatch* watch) {
  int64_t size = kSizeMin;
  while (size < size_max && product_seconds(ops, dtype, size, 2, room) < kLongEnough) size *= 2;
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / product_seconds(ops, dtype, size, kTries, room, watch) * 1e-12;
}

}  // namespace

double measure_gemm_peak_tflops(Ops& ops, DType dtype, const GemmWatch* watch) {
  // Three matrices of at most 1 MiB: cache-resident, yet long enough to time.
  constexpr int64_t kSizeMax = 512;
  MemoryPlan plan;
  const BufferId room =
      plan.add("matrices", MemoryCategory::kWorkspace, bytes_of_three(dtype, kSizeMax));
  const Arena arena(plan);
  return peak_of_sizes(ops, dtype, kSizeMax, arena.buffer(room), watch);
}

double measure_gemm_peak_tflops(Ops& ops, DType dtype, const Tensor& room) {
  constexpr int64_t kSizeMax = 8192;
  int64_t size = kSizeMax;
  while (size >= kSizeMin && bytes_of_three(dtype, size) > room.bytes()) size /= 2;
  return size < kSizeMin ? 0 : peak_of_sizes(ops, dtype, size, room.data, nullptr);
}

}  // namespace muster::trainer

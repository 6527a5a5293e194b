#include "bench/cpu_train/timed_ops.h"

namespace muster::trainer {

void TimedOps::upload(const void* from, const Tensor& to) {
  const Stopwatch stopwatch(times_["upload"]);
  inner_.upload(from, to);
}

void TimedOps::download(const Tensor& from, void* to) {
  const Stopwatch stopwatch(times_["download"]);
  inner_.download(from, to);
}

void TimedOps::matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c, Accumulate accumulate) {
  const int64_t k = a.dim(transpose_a == Transpose::kYes ? 0 : 1);
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const std::string op = "matmul " + std::to_string(c.dim(0)) + "x" + std::to_string(c.dim(1)) +
                         "x" + std::to_string(k) + " " + (ta ? "T" : "N") + (tb ? "T" : "N") +
                         (accumulate == Accumulate::kYes ? "+" : "");
  const Stopwatch stopwatch(times_[op],
                            2.0 * static_cast<double>(c.elements()) * static_cast<double>(k));
  inner_.matmul(a, transpose_a, b, transpose_b, c, accumulate);
}

}  // namespace muster::trainer

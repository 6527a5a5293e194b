#include "bench/cpu_train/timed_ops.h"

#include <utility>

namespace muster::trainer {
namespace {

class Stopwatch {
 public:
  Stopwatch(OpTime& into, double flops) : into_(into), start_(monotonic_now()) {
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

}  // namespace

template <class Call>
auto TimedOps::timed(std::string op, const Call& call, double flops) {
  const Stopwatch stopwatch(times_[std::move(op)], flops);
  return call();
}

void TimedOps::upload(const void* from, const Tensor& to) {
  timed("upload", [&] { inner_.upload(from, to); });
}
void TimedOps::download(const Tensor& from, void* to) {
  timed("download", [&] { inner_.download(from, to); });
}
void TimedOps::fill(const Tensor& x, float value) {
  timed("fill", [&] { inner_.fill(x, value); });
}
void TimedOps::copy(const Tensor& from, const Tensor& to) {
  timed("copy", [&] { inner_.copy(from, to); });
}
double TimedOps::sum(const Tensor& x) {
  return timed("sum", [&] { return inner_.sum(x); });
}
double TimedOps::sum_of_squares(const Tensor& x) {
  return timed("sum_of_squares", [&] { return inner_.sum_of_squares(x); });
}
void TimedOps::matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c, Accumulate accumulate) {
  const int64_t k = a.dim(transpose_a == Transpose::kYes ? 0 : 1);
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const std::string op = "matmul " + std::to_string(c.dim(0)) + "x" + std::to_string(c.dim(1)) +
                         "x" + std::to_string(k) + " " + (ta ? "T" : "N") + (tb ? "T" : "N") +
                         (accumulate == Accumulate::kYes ? "+" : "");
  timed(
      op, [&] { inner_.matmul(a, transpose_a, b, transpose_b, c, accumulate); },
      2.0 * static_cast<double>(c.elements()) * static_cast<double>(k));
}
void TimedOps::embedding(const Tensor& tokens, const Tensor& table, const Tensor& out) {
  timed("embedding", [&] { inner_.embedding(tokens, table, out); });
}
void TimedOps::embedding_backward(const Tensor& tokens, const Tensor& dout, const Tensor& dtable) {
  timed("embedding_backward", [&] { inner_.embedding_backward(tokens, dout, dtable); });
}
void TimedOps::rms_norm(const Tensor& x, const Tensor& gain, double eps, const Tensor& y,
                        const Tensor& rstd) {
  timed("rms_norm", [&] { inner_.rms_norm(x, gain, eps, y, rstd); });
}
void TimedOps::add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& gain, double eps,
                            const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  timed("add_rms_norm", [&] { inner_.add_rms_norm(x, delta, gain, eps, sum, y, rstd); });
}
void TimedOps::rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& rstd, const Tensor& dx, const Tensor& dgain,
                                 Workspace workspace) {
  timed("rms_norm_backward",
        [&] { inner_.rms_norm_backward(dy, x, gain, rstd, dx, dgain, workspace); });
}
void TimedOps::rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                    RopeDirection direction, const Tensor& qkv) {
  timed("rope", [&] { inner_.rope(shape, cos, sin, direction, qkv); });
}
void TimedOps::attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& lse, Workspace workspace) {
  timed("attention", [&] { inner_.attention(shape, qkv, out, lse, workspace); });
}
void TimedOps::attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                                  const Tensor& lse, const Tensor& dout, const Tensor& dqkv,
                                  Workspace workspace) {
  timed("attention_backward",
        [&] { inner_.attention_backward(shape, qkv, out, lse, dout, dqkv, workspace); });
}
void TimedOps::swiglu(const Tensor& gate_up, const Tensor& out) {
  timed("swiglu", [&] { inner_.swiglu(gate_up, out); });
}
void TimedOps::swiglu_backward(const Tensor& dout, const Tensor& gate_up) {
  timed("swiglu_backward", [&] { inner_.swiglu_backward(dout, gate_up); });
}
void TimedOps::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights,
                             const Tensor& losses) {
  timed("cross_entropy", [&] { inner_.cross_entropy(logits, targets, weights, losses); });
}
void TimedOps::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      const Tensor& weights, const Tensor& losses) {
  timed("cross_entropy_backward",
        [&] { inner_.cross_entropy_backward(logits, targets, weights, losses); });
}
void TimedOps::adamw(const AdamWStep& step, const Tensor& grads, const Tensor& params,
                     const Tensor& m, const Tensor& v) {
  timed("adamw", [&] { inner_.adamw(step, grads, params, m, v); });
}

}  // namespace muster::trainer

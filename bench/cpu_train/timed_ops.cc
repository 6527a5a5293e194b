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
void TimedOps::fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                           const Tensor& x) {
  timed("fill_normal", [&] { inner_.fill_normal(values, first, pitch, x); });
}
void TimedOps::copy(const Tensor& from, const Tensor& to) {
  timed("copy", [&] { inner_.copy(from, to); });
}
void TimedOps::add(const Tensor& x, const Tensor& delta, const Tensor& sum) {
  timed("add", [&] { inner_.add(x, delta, sum); });
}
void TimedOps::scale(double factor, const Tensor& x) {
  timed("scale", [&] { inner_.scale(factor, x); });
}
void TimedOps::dropout(const DropoutMask& mask, const Tensor& x) {
  timed("dropout", [&] { inner_.dropout(mask, x); });
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
void TimedOps::add_bias(const Tensor& bias, const Tensor& x) {
  timed("add_bias", [&] { inner_.add_bias(bias, x); });
}
void TimedOps::bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                             Workspace workspace) {
  timed("bias_backward", [&] { inner_.bias_backward(dx, dbias, accumulate, workspace); });
}
void TimedOps::embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                         double scale, const Tensor& out) {
  timed("embedding", [&] { inner_.embedding(tokens, table, slice, scale, out); });
}
void TimedOps::embedding_backward(const Tensor& tokens, const Tensor& dout,
                                  const VocabularySlice& slice, double scale,
                                  const Tensor& dtable) {
  timed("embedding_backward",
        [&] { inner_.embedding_backward(tokens, dout, slice, scale, dtable); });
}
void TimedOps::add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                             const Tensor& x) {
  timed("add_positions", [&] { inner_.add_positions(table, rows, starts, x); });
}
void TimedOps::positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                                  const Tensor& dtable, Accumulate accumulate) {
  timed("positions_backward",
        [&] { inner_.positions_backward(dx, rows, starts, dtable, accumulate); });
}
void TimedOps::norm(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                    const Tensor& y, const Tensor& stats) {
  timed("norm", [&] { inner_.norm(shape, x, weights, y, stats); });
}
void TimedOps::add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                        const NormWeights& weights, const Tensor& sum, const Tensor& y,
                        const Tensor& stats) {
  timed("add_norm", [&] { inner_.add_norm(shape, x, delta, weights, sum, y, stats); });
}
void TimedOps::norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                             const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                             const NormWeights& d_weights, Accumulate accumulate,
                             Workspace workspace) {
  timed("norm_backward", [&] {
    inner_.norm_backward(shape, dy, x, weights, stats, dx, d_weights, accumulate, workspace);
  });
}
void TimedOps::rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                    RopePairs pairs, RopeDirection direction, const Tensor& qkv) {
  timed("rope", [&] { inner_.rope(shape, cos, sin, pairs, direction, qkv); });
}
void TimedOps::attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                         const Tensor& out, const Tensor& lse, Workspace workspace) {
  timed("attention", [&] { inner_.attention(shape, qkv, bias, out, lse, workspace); });
}
void TimedOps::attention_cached(const AttentionShape& shape, int64_t position, const Tensor& qkv,
                                const Tensor& bias, const KvCache& cache, const Tensor& out,
                                Workspace workspace) {
  timed("attention_cached",
        [&] { inner_.attention_cached(shape, position, qkv, bias, cache, out, workspace); });
}
void TimedOps::attention_backward(const AttentionShape& shape, const Tensor& qkv,
                                  const Tensor& bias, const Tensor& out, const Tensor& lse,
                                  const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                  Accumulate accumulate, Workspace workspace) {
  timed("attention_backward", [&] {
    inner_.attention_backward(shape, qkv, bias, out, lse, dout, dqkv, dbias, accumulate, workspace);
  });
}
void TimedOps::copy_columns(const Tensor& from, int64_t from_column, const Tensor& to,
                            int64_t to_column, int64_t columns) {
  timed("copy_columns", [&] { inner_.copy_columns(from, from_column, to, to_column, columns); });
}
void TimedOps::attention_block(const AttentionShape& shape, const Tensor& qkv,
                               const KeyValueBlock& keys, const Tensor& bias,
                               const AttentionSums& sums, Accumulate accumulate,
                               Workspace workspace) {
  timed("attention_block",
        [&] { inner_.attention_block(shape, qkv, keys, bias, sums, accumulate, workspace); });
}
void TimedOps::attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                        const KeyValueBlock& keys, const Tensor& bias,
                                        const Tensor& out, const Tensor& lse, const Tensor& dout,
                                        const AttentionBlockGradients& gradients,
                                        Workspace workspace) {
  timed("attention_block_backward", [&] {
    inner_.attention_block_backward(shape, qkv, keys, bias, out, lse, dout, gradients, workspace);
  });
}
void TimedOps::logit_sums(const LossShape& shape, const VocabularySlice& slice,
                          const Tensor& logits, const Tensor& targets, const Tensor& sums) {
  timed("logit_sums", [&] { inner_.logit_sums(shape, slice, logits, targets, sums); });
}
void TimedOps::sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                    const Tensor& weights, const Tensor& losses) {
  timed("sliced_cross_entropy", [&] { inner_.sliced_cross_entropy(shape, sums, weights, losses); });
}
void TimedOps::sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                             const Tensor& logits, const Tensor& targets,
                                             const Tensor& sums, const Tensor& weights,
                                             const Tensor& losses) {
  timed("sliced_cross_entropy_backward", [&] {
    inner_.sliced_cross_entropy_backward(shape, slice, logits, targets, sums, weights, losses);
  });
}
void TimedOps::route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  timed("route", [&] { inner_.route(shape, weights, routing); });
}
void TimedOps::route_backward(const RoutingShape& shape, const Tensor& weights,
                              const Tensor& dgates, const Routing& routing) {
  timed("route_backward", [&] { inner_.route_backward(shape, weights, dgates, routing); });
}
void TimedOps::dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) {
  timed("dispatch", [&] { inner_.dispatch(slots, x, rows); });
}
void TimedOps::dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) {
  timed("dispatch_backward", [&] { inner_.dispatch_backward(slots, drows, dx); });
}
void TimedOps::combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
                       const Tensor& out) {
  timed("combine", [&] { inner_.combine(slots, gates, rows, out); });
}
void TimedOps::combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                                const Tensor& dact, const Tensor& dgates) {
  timed("combine_backward", [&] { inner_.combine_backward(slots, gates, act, dact, dgates); });
}
void TimedOps::expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                             const Tensor& y) {
  timed("expert_matmul", [&] { inner_.expert_matmul(offsets, x, w, y); });
}
void TimedOps::expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                                const Tensor& dx) {
  timed("expert_matmul_dx", [&] { inner_.expert_matmul_dx(offsets, dy, w, dx); });
}
void TimedOps::expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                const Tensor& dw, Accumulate accumulate) {
  timed("expert_matmul_dw", [&] { inner_.expert_matmul_dw(offsets, dy, x, dw, accumulate); });
}
void TimedOps::activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) {
  timed("activate", [&] { inner_.activate(activation, in, out); });
}
void TimedOps::activate_backward(const MlpActivation& activation, const Tensor& dout,
                                 const Tensor& in, const Tensor& d_in) {
  timed("activate_backward", [&] { inner_.activate_backward(activation, dout, in, d_in); });
}
void TimedOps::soft_cap(double cap, const Tensor& x) {
  timed("soft_cap", [&] { inner_.soft_cap(cap, x); });
}
void TimedOps::cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                             const Tensor& weights, const Tensor& losses) {
  timed("cross_entropy", [&] { inner_.cross_entropy(shape, logits, targets, weights, losses); });
}
void TimedOps::cross_entropy_backward(const LossShape& shape, const Tensor& logits,
                                      const Tensor& targets, const Tensor& weights,
                                      const Tensor& losses) {
  timed("cross_entropy_backward",
        [&] { inner_.cross_entropy_backward(shape, logits, targets, weights, losses); });
}
void TimedOps::abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) {
  timed("abs_max", [&] { inner_.abs_max(x, of, amax, accumulate); });
}
void TimedOps::current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) {
  timed("current_scale", [&] { inner_.current_scale(grid, amax, scale); });
}
void TimedOps::delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  timed("delayed_scale", [&] { inner_.delayed_scale(amax, history, scale); });
}
void TimedOps::quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                        const std::optional<RoundingNoise>& noise, const Tensor& out) {
  timed("quantize", [&] { inner_.quantize(grid, x, of, scale, noise, out); });
}
void TimedOps::dequantize(const Tensor& product, const Tensor& row_scale,
                          const Tensor& column_scale, const Tensor& out, Accumulate accumulate) {
  timed("dequantize",
        [&] { inner_.dequantize(product, row_scale, column_scale, out, accumulate); });
}
void TimedOps::adam(const AdamStep& step, const Tensor& grads, const Tensor& params,
                    const Tensor& m, const Tensor& v) {
  timed("adam", [&] { inner_.adam(step, grads, params, m, v); });
}
void TimedOps::adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                              const Tensor& v) {
  timed("adam_direction", [&] { inner_.adam_direction(step, grads, m, v); });
}
void TimedOps::adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                   const Tensor& v) {
  timed("adafactor_direction", [&] { inner_.adafactor_direction(step, grads, v); });
}
void TimedOps::add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) {
  timed("add_squares", [&] { inner_.add_squares(x, rows, columns); });
}
void TimedOps::adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                                 std::span<const double> column_sums, const Tensor& rows,
                                 const Tensor& columns) {
  timed("adafactor_factors",
        [&] { inner_.adafactor_factors(step, row_sums, column_sums, rows, columns); });
}
void TimedOps::adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                            const Tensor& rows, int64_t first_row,
                                            const Tensor& columns, int64_t first_column) {
  timed("adafactor_factored_direction", [&] {
    inner_.adafactor_factored_direction(step, grads, rows, first_row, columns, first_column);
  });
}
void TimedOps::apply_update(double rate, double kept, const Tensor& direction,
                            const Tensor& params) {
  timed("apply_update", [&] { inner_.apply_update(rate, kept, direction, params); });
}

}  // namespace muster::trainer

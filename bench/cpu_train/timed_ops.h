// Wraps another backend's op table with a timer around every call, to break down the time of a
// step.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/time.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

struct OpTime {
  double seconds = 0;
  double flops = 0;  // of matmuls
  int64_t calls = 0;
};

// Measures synchronous calls, so that it fits backends that compute during the call.
class TimedOps : public Ops {
 public:
  // `inner` must outlive it.
  explicit TimedOps(Ops& inner) : inner_(inner) {}

  const std::map<std::string, OpTime>& times() const { return times_; }
  void reset() { times_.clear(); }

  std::string_view name() const override { return inner_.name(); }
  void upload(const void* from, const Tensor& to) override;
  void download(const Tensor& from, void* to) override;
  void synchronize() override { inner_.synchronize(); }
  void fill(const Tensor& x, float value) override;
  void fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                   const Tensor& x) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void add(const Tensor& x, const Tensor& delta, const Tensor& sum) override;
  void scale(double factor, const Tensor& x) override;
  void dropout(const DropoutMask& mask, const Tensor& x) override;
  double sum(const Tensor& x) override;
  double sum_of_squares(const Tensor& x) override;
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override;
  void add_bias(const Tensor& bias, const Tensor& x) override;
  void bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                     Workspace workspace) override;
  void embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                 double scale, const Tensor& out) override;
  void embedding_backward(const Tensor& tokens, const Tensor& dout, const VocabularySlice& slice,
                          double scale, const Tensor& dtable) override;
  void add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                     const Tensor& x) override;
  void positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                          const Tensor& dtable, Accumulate accumulate) override;
  void norm(const NormShape& shape, const Tensor& x, const NormWeights& weights, const Tensor& y,
            const Tensor& stats) override;
  void add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                const NormWeights& weights, const Tensor& sum, const Tensor& y,
                const Tensor& stats) override;
  void norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                     const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                     const NormWeights& d_weights, Accumulate accumulate,
                     Workspace workspace) override;
  void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin, RopePairs pairs,
            RopeDirection direction, const Tensor& qkv) override;
  void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                 const Tensor& out, const Tensor& lse, Workspace workspace) override;
  void attention_cached(const AttentionShape& shape, int64_t position, const Tensor& qkv,
                        const Tensor& bias, const KvCache& cache, const Tensor& out,
                        Workspace workspace) override;
  void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                          const Tensor& out, const Tensor& lse, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate,
                          Workspace workspace) override;
  void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to, int64_t to_column,
                    int64_t columns) override;
  void attention_block(const AttentionShape& shape, const Tensor& qkv, const KeyValueBlock& keys,
                       const Tensor& bias, const AttentionSums& sums, Accumulate accumulate,
                       Workspace workspace) override;
  void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                const KeyValueBlock& keys, const Tensor& bias, const Tensor& out,
                                const Tensor& lse, const Tensor& dout,
                                const AttentionBlockGradients& gradients,
                                Workspace workspace) override;
  void logit_sums(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                  const Tensor& targets, const Tensor& sums) override;
  void sliced_cross_entropy(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                            const Tensor& losses) override;
  void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                     const Tensor& logits, const Tensor& targets,
                                     const Tensor& sums, const Tensor& weights,
                                     const Tensor& losses) override;
  void route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) override;
  void route_backward(const RoutingShape& shape, const Tensor& weights, const Tensor& dgates,
                      const Routing& routing) override;
  void dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) override;
  void dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) override;
  void combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
               const Tensor& out) override;
  void combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                        const Tensor& dact, const Tensor& dgates) override;
  void expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                     const Tensor& y) override;
  void expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                        const Tensor& dx) override;
  void expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x, const Tensor& dw,
                        Accumulate accumulate) override;
  void abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) override;
  void current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) override;
  void delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) override;
  void quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                const std::optional<RoundingNoise>& noise, const Tensor& out) override;
  void dequantize(const Tensor& product, const Tensor& row_scale, const Tensor& column_scale,
                  const Tensor& out, Accumulate accumulate) override;
  void activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) override;
  void activate_backward(const MlpActivation& activation, const Tensor& dout, const Tensor& in,
                         const Tensor& d_in) override;
  void soft_cap(double cap, const Tensor& x) override;
  void cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                     const Tensor& weights, const Tensor& losses) override;
  void cross_entropy_backward(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                              const Tensor& weights, const Tensor& losses) override;
  void adam(const AdamStep& step, const Tensor& grads, const Tensor& params, const Tensor& m,
            const Tensor& v) override;
  void adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                      const Tensor& v) override;
  void adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                           const Tensor& v) override;
  void add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) override;
  void adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                         std::span<const double> column_sums, const Tensor& rows,
                         const Tensor& columns) override;
  void adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                    const Tensor& rows, int64_t first_row, const Tensor& columns,
                                    int64_t first_column) override;
  void apply_update(double rate, double kept, const Tensor& direction,
                    const Tensor& params) override;

 private:
  template <class Call>
  auto timed(std::string op, const Call& call, double flops = 0);

  Ops& inner_;
  std::map<std::string, OpTime> times_;
};

}  // namespace muster::trainer

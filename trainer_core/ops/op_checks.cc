// The checks of operations' arguments: sizes, types and ranges that hold on every backend. Backends
// check values (ids, document starts) and their own limits.
#include <algorithm>

#include "trainer_core/ops/ops.h"
#include "trainer_core/ops/shape_checks.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

void check_starts_size(const Tensor& starts, int64_t rows) {
  if (starts.data != nullptr) check_size(starts, rows, "starts");
}

void check_norm(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                const Tensor& y, const Tensor& stats) {
  const int64_t width = weights.gain.elements();
  check_size(y, x.elements(), "the norm's output");
  check_size(stats, shape.stats(x.elements() / width), "stats");
  if (shape.type == NormType::kLayer) check_size(weights.bias, width, "the norm's bias");
}

void check_activation(const MlpActivation& activation, const Tensor& in, const Tensor& out) {
  const int64_t width = out.dim(out.rank - 1);
  check_size(in, rows_of(out) * activation.input_width(width), "the activation's input");
  (void)same_type({in, out});
}

void check_attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                     const Tensor& lse) {
  check_attention_shape(shape, qkv, out);
  check_starts_size(shape.starts, shape.rows());
  check_size(lse, shape.rows() * shape.heads, "lse");
}

void check_loss(const Tensor& logits, const Tensor& targets, const Tensor& weights,
                const Tensor& losses) {
  const int64_t rows = logits.dim(0);
  check_size(targets, rows, "targets");
  check_size(weights, rows, "weights");
  check_size(losses, rows, "losses");
}

void check_row_sort(const Workspace& workspace, int64_t rows) {
  MUSTER_CHECK(workspace.elements >= row_sort_elements(rows))
      << "workspace for the gradient of a table is too small";
}

void check_routing(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  MUSTER_CHECK(shape.groups >= 1 && shape.tokens % shape.groups == 0 && shape.per_token >= 1 &&
               shape.per_token <= shape.experts)
      << shape.tokens << " tokens in " << shape.groups << " groups, " << shape.per_token << " of "
      << shape.experts << " experts";
  MUSTER_CHECK(shape.first_own >= 0 && shape.first_own + shape.own_tokens() <= shape.tokens)
      << shape.own_tokens() << " own tokens from " << shape.first_own << " of " << shape.tokens;
  if (shape.balance_weight != 0) check_size(weights, shape.tokens, "target weights");
  check_size(routing.probs, shape.tokens * shape.experts, "probs");
  check_size(routing.experts, shape.rows(), "experts");
  check_size(routing.gates, shape.rows(), "gates");
  check_size(routing.slots, shape.rows(), "slots");
  check_size(routing.offsets, shape.experts + 1, "offsets");
  check_size(routing.density, shape.groups * shape.experts, "density");
  check_size(routing.balance, shape.groups, "balance");
  if (routing.order.data != nullptr) check_size(routing.order, shape.tokens, "order");
}

void check_expert_rows(const Tensor& slots, const Tensor& tokens, const Tensor& rows) {
  const int64_t width = tokens.dim(1);
  MUSTER_CHECK(rows.dim(1) == width && rows.dim(0) == slots.elements())
      << "rows (" << rows.dim(0) << ", " << rows.dim(1) << ") for " << slots.elements()
      << " slots of width " << width;
  (void)same_type({tokens, rows});
}

}  // namespace

namespace op_checks {

// Elementwise

void copy(const Tensor& from, const Tensor& to) {
  check_size(to, from.elements(), "copy's target");
  const auto is_float = [](const Tensor& x) { return x.dtype != DType::kI32; };
  if (!is_float(from) || !is_float(to)) (void)same_type({from, to});
}
void add(const Tensor& x, const Tensor& delta, const Tensor& sum) {
  check_size(delta, x.elements(), "what is added");
  check_size(sum, x.elements(), "the sum");
  (void)same_type({x, delta, sum});
}
void add_bias(const Tensor& bias, const Tensor& x) {
  const int64_t width = bias.elements();
  MUSTER_CHECK(x.elements() % width == 0) << "add_bias of " << width << " elements";
}
void bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate /*accumulate*/,
                   Workspace workspace) {
  const int64_t width = dbias.elements(), rows = dx.elements() / width;
  check_size(dx, rows * width, "dx");
  MUSTER_CHECK(workspace.elements >= std::min(kRowSumBlocks, rows) * width)
      << "workspace of bias_backward is too small";
}
void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to, int64_t to_column,
                  int64_t columns) {
  const int64_t from_width = from.dim(from.rank - 1), to_width = to.dim(to.rank - 1);
  check_size(to, rows_of(from) * to_width, "copy_columns's target");
  MUSTER_CHECK(from_column >= 0 && from_column + columns <= from_width && to_column >= 0 &&
               to_column + columns <= to_width)
      << columns << " columns from " << from_column << " of " << from_width << " to " << to_column
      << " of " << to_width;
}

// Embedding

void embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& /*slice*/,
               double /*scale*/, const Tensor& out) {
  check_size(out, tokens.elements() * table.dim(1), "embedding's output");
  MUSTER_CHECK(table.dtype == DType::kF32 || table.dtype == same_type({out}))
      << "an fp32 output of a bf16 table";
}
void embedding_backward(const Tensor& tokens, const Tensor& dout, const VocabularySlice& /*slice*/,
                        double /*scale*/, const Tensor& dtable, Workspace workspace) {
  check_row_sort(workspace, tokens.elements());
  check_size(dout, tokens.elements() * dtable.dim(1), "embedding's gradient");
}
void add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                   const Tensor& x) {
  check_positions(table, rows);
  check_starts_size(starts, x.elements() / table.dim(1));
}
void positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                        const Tensor& dtable, Accumulate /*accumulate*/, Workspace workspace) {
  check_row_sort(workspace, dx.elements() / dtable.dim(1));
  check_positions(dtable, rows);
  check_starts_size(starts, dx.elements() / dtable.dim(1));
}

// Norms

void norm(const NormShape& shape, const Tensor& x, const NormWeights& weights, const Tensor& y,
          const Tensor& stats) {
  (void)same_type({x, y});
  check_norm(shape, x, weights, y, stats);
}
void add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
              const NormWeights& weights, const Tensor& sum, const Tensor& y, const Tensor& stats) {
  check_size(delta, x.elements(), "delta");
  check_size(sum, x.elements(), "the residual sum");
  (void)same_type({x, delta, sum, y});
  check_norm(shape, x, weights, y, stats);
}
void norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                   const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                   const NormWeights& d_weights, Accumulate /*accumulate*/, Workspace workspace) {
  const int64_t width = weights.gain.elements(), rows = x.elements() / width;
  check_size(dy, x.elements(), "dy");
  check_size(dx, x.elements(), "dx");
  if (d_weights.gain.data != nullptr) {
    check_size(d_weights.gain, width, "the gain's gradient");
    if (shape.type == NormType::kLayer) check_size(d_weights.bias, width, "the bias's gradient");
  }
  check_size(stats, shape.stats(rows), "stats");
  (void)same_type({dy, x, dx});
  MUSTER_CHECK(workspace.elements >= 2 * std::min(kRowSumBlocks, rows) * width)
      << "workspace of norm_backward is too small";
}

// MLP

void activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) {
  check_activation(activation, in, out);
}
void activate_backward(const MlpActivation& activation, const Tensor& dout, const Tensor& in,
                       const Tensor& d_in) {
  check_size(d_in, in.elements(), "the activation's gradient");
  (void)same_type({in, d_in});
  check_activation(activation, in, dout);
}

// Attention

void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin, RopePairs /*pairs*/,
          RopeDirection /*direction*/, const Tensor& qkv) {
  MUSTER_CHECK(shape.head_dim % 2 == 0) << "rope of head_dim " << shape.head_dim;
  check_size(qkv, shape.rows() * shape.qkv_width(), "qkv");
  (void)same_type({qkv});
  check_starts_size(shape.starts, shape.rows());
  check_positions(cos, shape.token_rows());
  check_size(cos, cos.dim(0) * shape.head_dim / 2, "cos");
  check_size(sin, cos.elements(), "sin");
}
void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& /*bias*/,
               const Tensor& out, const Tensor& lse, Workspace /*workspace*/) {
  check_attention(shape, qkv, out, lse);
  (void)same_type({qkv, out});
}
void attention_paged(const AttentionShape& shape, const PagedRows& rows, const Tensor& qkv,
                     const Tensor& /*bias*/, const KvCache& cache, const Tensor& out,
                     Workspace /*workspace*/) {
  const int64_t elements =
      cache.blocks() * shape.kv_heads * cache.block_positions() * shape.head_dim;
  check_attention_shape(shape, qkv, out);
  MUSTER_CHECK(shape.batch == 1 && shape.starts.data == nullptr)
      << "rows in the order of sequences, or documents in a cache";
  check_size(rows.sequences, shape.rows(), "the rows' sequences");
  check_size(rows.positions, shape.rows(), "the rows' positions");
  check_size(cache.keys, elements, "the cached keys");
  check_size(cache.values, elements, "the cached values");
  (void)same_type({qkv, out});
  if (!cache.is_int8()) {
    (void)same_type({qkv, cache.keys, cache.values});
    return;
  }
  check_size(cache.key_scales, elements / shape.head_dim, "the scales of keys");
  check_size(cache.value_scales, elements / shape.head_dim, "the scales of values");
}
void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& /*bias*/,
                        const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& dqkv, const Tensor& /*dbias*/, Accumulate /*accumulate*/,
                        Workspace /*workspace*/) {
  check_attention(shape, qkv, out, lse);
  check_size(dout, out.elements(), "dout");
  check_size(dqkv, qkv.elements(), "dqkv");
  (void)same_type({qkv, out, dout, dqkv});
}
void attention_block(const AttentionShape& shape, const Tensor& qkv, const KeyValueBlock& keys,
                     const Tensor& /*bias*/, const AttentionSums& sums, Accumulate /*accumulate*/,
                     Workspace /*workspace*/) {
  check_attention(shape, qkv, sums.out, sums.lse);
  check_key_block(shape, keys);
  (void)same_type({qkv, keys.rows});
}
void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                              const KeyValueBlock& keys, const Tensor& /*bias*/, const Tensor& out,
                              const Tensor& lse, const Tensor& dout,
                              const AttentionBlockGradients& gradients, Workspace /*workspace*/) {
  check_attention(shape, qkv, out, lse);
  check_key_block(shape, keys);
  check_size(dout, out.elements(), "dout");
  check_size(gradients.dq, out.elements(), "dq");
  check_size(gradients.dkv, keys.rows.elements(), "dkv");
  (void)same_type({qkv, keys.rows, out, dout});
}

// Loss

void cross_entropy(const LossShape& /*shape*/, const Tensor& logits, const Tensor& targets,
                   const Tensor& weights, const Tensor& losses) {
  check_loss(logits, targets, weights, losses);
}
void cross_entropy_backward(const LossShape& /*shape*/, const Tensor& logits, const Tensor& targets,
                            const Tensor& weights, const Tensor& losses, const Tensor& gradient) {
  check_loss(logits, targets, weights, losses);
  check_size(gradient, logits.elements(), "the logits' gradient");
}
void logit_sums(const LossShape& /*shape*/, const VocabularySlice& /*slice*/, const Tensor& logits,
                const Tensor& targets, const Tensor& sums) {
  check_size(targets, logits.dim(0), "targets");
  check_size(sums, logits.dim(0) * kLogitSums, "sums of logits");
}
void sliced_cross_entropy(const LossShape& /*shape*/, const Tensor& sums, const Tensor& weights,
                          const Tensor& losses) {
  const int64_t each = weights.elements() * kLogitSums;
  check_size(losses, weights.elements(), "losses");
  check_size(sums, each == 0 ? 0 : sums.elements() / each * each, "sums of logits");
}
void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& /*slice*/,
                                   const Tensor& logits, const Tensor& targets, const Tensor& sums,
                                   const Tensor& weights, const Tensor& losses,
                                   const Tensor& gradient) {
  check_loss(logits, targets, weights, losses);
  check_size(gradient, logits.elements(), "the logits' gradient");
  sliced_cross_entropy(shape, sums, weights, losses);
}

// Optimizer

void adam(const AdamStep& /*step*/, const Tensor& grads, const Tensor& params, const Tensor& m,
          const Tensor& v) {
  check_size(params, grads.elements(), "params");
  check_size(m, grads.elements(), "m");
  check_size(v, grads.elements(), "v");
}
void adam_direction(const AdamStep& /*step*/, const Tensor& grads, const Tensor& m,
                    const Tensor& v) {
  check_size(m, grads.elements(), "m");
  check_size(v, grads.elements(), "v");
}
void adafactor_direction(const AdafactorStep& /*step*/, const Tensor& grads, const Tensor& v) {
  check_size(v, grads.elements(), "v");
}
void add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) {
  MUSTER_CHECK(x.rank == 2 && x.dim(0) == static_cast<int64_t>(rows.size()) &&
               x.dim(1) == static_cast<int64_t>(columns.size()))
      << "sums of " << rows.size() << " and " << columns.size();
}
void adafactor_factors(const AdafactorStep& /*step*/, std::span<const double> row_sums,
                       std::span<const double> column_sums, const Tensor& rows,
                       const Tensor& columns) {
  MUSTER_CHECK(rows.elements() == static_cast<int64_t>(row_sums.size()) &&
               columns.elements() == static_cast<int64_t>(column_sums.size()))
      << "factors of " << rows.elements() << " and " << columns.elements();
}
void adafactor_factored_direction(const AdafactorStep& /*step*/, const Tensor& grads,
                                  const Tensor& rows, int64_t first_row, const Tensor& columns,
                                  int64_t first_column) {
  MUSTER_CHECK(grads.rank == 2 && first_row + grads.dim(0) <= rows.elements() &&
               first_column + grads.dim(1) <= columns.elements())
      << "factors of " << rows.elements() << " and " << columns.elements();
}
void apply_update(double /*rate*/, double /*kept*/, const Tensor& direction, const Tensor& params) {
  check_size(params, direction.elements(), "params");
}

// Experts

void route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  check_routing(shape, weights, routing);
}
void route_backward(const RoutingShape& shape, const Tensor& weights, const Tensor& dgates,
                    const Routing& routing) {
  check_routing(shape, weights, routing);
  check_size(dgates, shape.own_tokens() * shape.per_token, "gates' gradients");
}
void dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) {
  check_expert_rows(slots, x, rows);
}
void dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) {
  check_expert_rows(slots, dx, drows);
}
void combine(const Tensor& slots, const Tensor& gates, const Tensor& rows, const Tensor& out) {
  check_size(gates, slots.elements(), "gates");
  check_expert_rows(slots, out, rows);
}
void combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                      const Tensor& dact, const Tensor& dgates) {
  MUSTER_CHECK(act.dim(0) == slots.elements() && dact.elements() == act.elements() &&
               gates.elements() == slots.elements() && dgates.elements() == slots.elements())
      << "combine_backward of " << slots.elements() << " slots and " << act.dim(0) << " rows";
  (void)same_type({act, dact});
}
void expert_matmul(const Tensor& /*offsets*/, const Tensor& x, const Tensor& w, const Tensor& y) {
  MUSTER_CHECK(w.dim(1) == y.dim(1) && w.dim(2) == x.dim(1) && x.dim(0) == y.dim(0))
      << "expert_matmul";
}
void expert_matmul_dx(const Tensor& /*offsets*/, const Tensor& dy, const Tensor& w,
                      const Tensor& dx) {
  MUSTER_CHECK(w.dim(1) == dy.dim(1) && w.dim(2) == dx.dim(1) && dx.dim(0) == dy.dim(0))
      << "expert_matmul_dx";
}
void expert_matmul_dw(const Tensor& /*offsets*/, const Tensor& dy, const Tensor& x,
                      const Tensor& dw, Accumulate /*accumulate*/) {
  MUSTER_CHECK(dw.dim(1) == dy.dim(1) && dw.dim(2) == x.dim(1) && x.dim(0) == dy.dim(0))
      << "expert_matmul_dw";
}

}  // namespace op_checks
}  // namespace muster::trainer

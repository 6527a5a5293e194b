// The exchanges of a pass over the model with ranks that compute other parts of the same tokens.
// parallel/mesh_exchange.h implements them on a mesh. On a single rank nothing is exchanged
// (NoExchange).
//
// Tensor parallelism: each rank has some of the heads, MLP columns and vocabulary ids. Each rank
// also stores only T' of the T rows of the residual stream, its own rows (Korthikanti et al.,
// "Reducing activation recomputation in large transformer models", 2022).
//
//   forward    own rows (T', d) ── all_rows ──▶ (T, d) ▶ GEMM by columns … GEMM by rows
//              ▶ partial (T, d) ── sum_rows ──▶ own rows (T', d)
//   backward   the reverse: gradients of sum_rows' results go through all_rows, and gradients of
//              all_rows' results are partial sums for sum_rows
//
// Sequence and context parallelism: each rank has some positions of each sequence (token_layout.h),
// but attention needs the keys and values of all positions.
//
//   forward    qkv (T, …) ── to_heads ──▶ attention ▶ out (T, H h)
//   backward   (out, dout) ▶ attention_backward ▶ dqkv (T, …)
//
// After to_heads, qkv and lse have a layout of the exchange's own, of the same size, in which
// layers also store them for the backward pass.
//
// There is a single buffer for all T rows. The result of all_rows() is valid until the next call of
// all_rows() or partial_rows(). A GEMM may overwrite rows of the buffer that it no longer reads.
//
// Expert parallelism: each of X ranks has E/X of the E experts, and its own tokens. Rows are sent
// to their experts and back. After routing, the ranks exchange the numbers of rows
// (parallel/expert_exchange.h):
//
//   forward    (R, d) by expert ── to_experts ──▶ (R', d) ▶ experts' GEMMs
//              ▶ (R', d) ── to_tokens ──▶ (R, d)
//   backward   gradients of outputs go to_experts, gradients of inputs to_tokens
//
// After the first failure broken() is true, and every call returns at once, as in ParameterBlocks.
// Called on the thread of the pass only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The part of the model that calls an exchange. The worker's progress page shows it: "layer 3 mlp
// in all-gather".
enum class ExchangeSite : uint8_t {
  kEmbedding,
  kQkv,
  kAttention,
  kOut,
  kMlpUp,
  kMlpDown,
  kRouter,
  kTargetWeights,
  kHead
};
// Identifies an exchange for the progress page.
struct ExchangeLabel {
  ExchangeSite site = ExchangeSite::kEmbedding;
  size_t layer = 0;  // index of the layer, for sites within layers
};

// R rows of the head: logits (R, V') of this rank's ids and, in a backward pass, their gradient,
// which in fp32 replaces them; targets, weights and losses (R).
struct HeadRows {
  Tensor logits;
  Tensor d_logits;
  Tensor targets;
  Tensor weights;
  Tensor losses;
};

// The arguments of Ops::attention for a layer, with this rank's positions and heads.
struct AttentionLayer {
  AttentionShape shape;
  Tensor qkv;   // (T, qkv_width), after to_heads
  Tensor bias;  // relative position bias; no data: none
  Tensor out;   // (T, H h)
  Tensor lse;   // (B, H, S)
  Workspace workspace;
};

// The numbers of rows that a layer's routing exchanges. They are in host memory, so that exchanges
// of rows need not wait for the device to report them.
struct ExpertCounts {
  std::vector<int32_t> sent;      // (E): rows of this rank's tokens for each expert
  std::vector<int32_t> received;  // (X, E/X): rows from each rank for each of this rank's experts

  int64_t rows_sent() const { return std::accumulate(sent.begin(), sent.end(), int64_t{0}); }
  int64_t rows_received() const {  // R'
    return std::accumulate(received.begin(), received.end(), int64_t{0});
  }
};

// The rows of a layer's experts: offsets in the rows of this rank's tokens, and in the rows that
// this rank's experts receive. On a single rank own_offsets equals offsets, and counts is null.
struct ExpertTraffic {
  Tensor offsets;  // (E + 1) int32, as in Routing: rows of this rank's tokens
  ExpertCounts* counts = nullptr;
  // (E/X + 1) int32: offsets of each own expert's rows among the received rows, which are ordered
  // by expert and, within an expert, by source rank.
  Tensor own_offsets;
};

// The arguments of Ops::combine_backward: `slots`, `gates` and `dgates` (R) of this rank's tokens,
// `act` and `dact` (R', m) of its experts.
struct ExpertGates {
  Tensor slots;
  Tensor gates;
  Tensor act;
  Tensor dact;
  Tensor dgates;
};

// The exchanges of one rank.
class ModelExchange {
 public:
  virtual ~ModelExchange() = default;

  // Returns all rows (T, d): the own rows `own` (T', d) of every rank.
  virtual Tensor all_rows(ExchangeLabel label, const Tensor& own) = 0;
  // Returns the buffer (T, d) into which a GEMM writes this rank's partial sums of all rows.
  // sum_rows() then adds them up into `own`.
  virtual Tensor partial_rows(const Tensor& own) = 0;
  // Sums `partial` over the ranks, and stores this rank's rows of the sum in `own`, which may lie
  // in `partial`.
  virtual void sum_rows(ExchangeLabel label, const Tensor& partial, const Tensor& own) = 0;

  // Replaces each element by its maximum over the ranks that split the columns of a GEMM.
  virtual void take_largest(ExchangeLabel label, const Tensor& values) = 0;

  // Fetches the rows of `all` that other ranks with the same sequences have. `all` (T*, …) has a
  // row for each token of these complete sequences. Requires that this rank's own rows are filled.
  virtual void fill_routed(ExchangeLabel label, const Tensor& all) = 0;

  // Converts qkv (T, qkv_width) in place to the layout for attention(). Called after RoPE. `shape`
  // has this rank's positions and heads.
  virtual void to_heads(ExchangeLabel label, const AttentionShape& shape, const Tensor& qkv) = 0;
  // Compute Ops::attention, or its gradient, over the positions of all ranks. The gradient may
  // overwrite layer.out and dout.
  virtual void attention(ExchangeLabel label, const AttentionLayer& layer) = 0;
  virtual void attention_backward(ExchangeLabel label, const AttentionLayer& layer,
                                  const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                  Accumulate accumulate) = 0;

  // Waits for the routing and sets `counts` and `own_offsets` of `traffic`. Called after routing in
  // the forward pass only: a recomputation has the same counts. After a failure the number of
  // received rows is 0.
  virtual void count_rows(ExchangeLabel label, const ExpertTraffic& traffic) = 0;
  // Send rows to their experts (to_experts) or back (to_tokens). `rows` (R, …) belong to this
  // rank's tokens and `own` (R', …) to its experts; both are the same tensor on a single rank.
  virtual void to_experts(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& rows,
                          const Tensor& own) = 0;
  virtual void to_tokens(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& own,
                         const Tensor& rows) = 0;
  // Computes Ops::combine_backward for tokens and experts on different ranks.
  virtual void combine_backward(ExchangeLabel label, const ExpertTraffic& traffic,
                                const ExpertGates& gates) = 0;

  // Compute Ops::cross_entropy, or its gradient, over the vocabulary ids of all ranks. Every rank
  // gets the losses of all rows.
  virtual void cross_entropy(const LossShape& shape, const HeadRows& rows) = 0;
  virtual void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) = 0;

  // Returns whether an exchange has failed.
  virtual bool broken() const = 0;
};

// Exchanges nothing, for a rank that has the complete model and all positions.
class NoExchange : public ModelExchange {
 public:
  explicit NoExchange(Ops& ops) : ops_(ops) {}

  Tensor all_rows(ExchangeLabel, const Tensor& own) override { return own; }
  Tensor partial_rows(const Tensor& own) override { return own; }
  void sum_rows(ExchangeLabel, const Tensor&, const Tensor&) override {}
  void take_largest(ExchangeLabel, const Tensor&) override {}
  void fill_routed(ExchangeLabel, const Tensor&) override {}
  void to_heads(ExchangeLabel, const AttentionShape&, const Tensor&) override {}
  void attention(ExchangeLabel, const AttentionLayer& layer) override {
    ops_.attention(layer.shape, layer.qkv, layer.bias, layer.out, layer.lse, layer.workspace);
  }
  void attention_backward(ExchangeLabel, const AttentionLayer& layer, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate) override {
    ops_.attention_backward(layer.shape, layer.qkv, layer.bias, layer.out, layer.lse, dout, dqkv,
                            dbias, accumulate, layer.workspace);
  }
  void count_rows(ExchangeLabel, const ExpertTraffic&) override {}
  void to_experts(ExchangeLabel, const ExpertTraffic&, const Tensor&, const Tensor&) override {}
  void to_tokens(ExchangeLabel, const ExpertTraffic&, const Tensor&, const Tensor&) override {}
  void combine_backward(ExchangeLabel, const ExpertTraffic&, const ExpertGates& g) override {
    ops_.combine_backward(g.slots, g.gates, g.act, g.dact, g.dgates);
  }
  void cross_entropy(const LossShape& shape, const HeadRows& rows) override {
    ops_.cross_entropy(shape, rows.logits, rows.targets, rows.weights, rows.losses);
  }
  void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) override {
    ops_.cross_entropy_backward(shape, rows.logits, rows.targets, rows.weights, rows.losses,
                                rows.d_logits);
  }
  bool broken() const override { return false; }

 private:
  Ops& ops_;
};

}  // namespace muster::trainer

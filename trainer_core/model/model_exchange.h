// The exchanges of a pass over the model with ranks that compute other parts of the same rows. On a
// single rank there are none: its tensors are whole, and every call returns its argument.
// parallel/mesh_exchange.h implements the exchanges on a mesh.
//
// Tensor parallelism with rows split between GEMMs (Korthikanti et al., "Reducing activation
// recomputation in large transformer models", 2022): each rank has some heads, MLP columns and ids,
// and its own T' of the T rows of the residual stream.
//
//   forward    own rows (T', d) ── all_rows ──▶ (T, d) ▶ GEMM by columns … GEMM by rows
//              ▶ partial (T, d) ── sum_rows ──▶ own rows (T', d)
//   backward   mirrors it: gradients of sum_rows' results go through all_rows, and gradients of
//              all_rows' results are partial sums
//
// Sequence and context parallelism: each rank has some positions of each sequence (token_layout.h),
// and attention needs all of them.
//
//   forward    qkv (T, …) ── to_heads ──▶ attention ▶ out (T, H h)
//   backward   (out, dout) ▶ attention_backward ▶ dqkv (T, …)
//
// Between to_heads and attention, qkv and lse have the exchange's own format, of the same size;
// layers store them in it.
//
// There is one buffer for all T rows. The result of all_rows is valid until the next all_rows or
// partial_rows, and a GEMM may write there what it no longer reads.
//
// Expert parallelism: each of X ranks has E/X experts and its own tokens. Rows are sent to their
// experts and back, by counts that are exchanged after routing (parallel/expert_exchange.h):
//
//   forward    (R, d) by expert ── to_experts ──▶ (R', d) ▶ experts' GEMMs
//              ▶ (R', d) ── to_tokens ──▶ (R, d)
//   backward   gradients of outputs go to_experts, gradients of inputs to_tokens
//
// The first failure is retained, as in ParameterBlocks. Called on the pass's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Identifies the caller on the progress page: "layer 3 mlp up all-gather".
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
struct ExchangeLabel {
  ExchangeSite site = ExchangeSite::kEmbedding;
  size_t layer = 0;  // for sites within layers
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

// A layer's attention with the tensors of Ops::attention, for this rank's positions and heads.
struct AttentionLayer {
  AttentionShape shape;
  Tensor qkv;  // (T, qkv_width), after to_heads
  Tensor bias;
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S)
  Workspace workspace;
};

// The number of rows that a layer's routing sends to each rank. On the host, so that no exchange of
// the rows waits for the device to report it.
struct ExpertCounts {
  std::vector<int32_t> sent;      // (E): rows of this rank's tokens for each expert
  std::vector<int32_t> received;  // (X, E/X): rows from each rank for each of this rank's experts

  int64_t rows_sent() const { return std::accumulate(sent.begin(), sent.end(), int64_t{0}); }
  int64_t rows_received() const {  // R'
    return std::accumulate(received.begin(), received.end(), int64_t{0});
  }
};

// The expert rows of a layer by owner. On one rank own_offsets equals offsets, and counts is null.
struct ExpertTraffic {
  Tensor offsets;  // (E + 1) int32, as in Routing: the rows of this rank's tokens
  ExpertCounts* counts = nullptr;
  // (E/X + 1) int32: the rows received, ordered by expert, and within an expert by rank.
  Tensor own_offsets;
};

// The arguments of Ops::combine_backward: slots, gates and dgates (R) of this rank's tokens, act
// and dact (R', m) of its experts.
struct ExpertGates {
  Tensor slots;
  Tensor gates;
  Tensor act;
  Tensor dact;
  Tensor dgates;
};

class ModelExchange {
 public:
  virtual ~ModelExchange() = default;

  // Returns the own rows of all ranks, (T, d).
  virtual Tensor all_rows(ExchangeLabel label, const Tensor& own) = 0;
  // Returns the buffer, (T, d), for a GEMM's summand of all rows; sum_rows() will reduce it to
  // `own`.
  virtual Tensor partial_rows(const Tensor& own) = 0;
  // Sums `partial` over the ranks into their own rows. `own` may be this rank's rows of `partial`.
  virtual void sum_rows(ExchangeLabel label, const Tensor& partial, const Tensor& own) = 0;

  // Replaces each element by its maximum over the ranks that have other columns of the same GEMM.
  virtual void take_largest(ExchangeLabel label, const Tensor& values) = 0;

  // Requires that the own rows of `all` (T*, …), the tokens of whole sequences, are filled; fetches
  // the others.
  virtual void fill_routed(ExchangeLabel label, const Tensor& all) = 0;

  // Converts qkv (T, qkv_width) in place, after RoPE. `shape` has this rank's positions and heads.
  virtual void to_heads(ExchangeLabel label, const AttentionShape& shape, const Tensor& qkv) = 0;
  // Ops::attention and its gradient over all positions. Backward may overwrite layer.out and dout.
  virtual void attention(ExchangeLabel label, const AttentionLayer& layer) = 0;
  virtual void attention_backward(ExchangeLabel label, const AttentionLayer& layer,
                                  const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                  Accumulate accumulate) = 0;

  // Sets the counts and own offsets after routing in the forward pass, and waits for the routing. A
  // recomputation has the same counts and does not call it. After a failure no rows count as
  // received.
  virtual void count_rows(ExchangeLabel label, const ExpertTraffic& traffic) = 0;
  // `rows` (R, …) and `own` (R', …) are the same tensor if there is no other rank.
  virtual void to_experts(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& rows,
                          const Tensor& own) = 0;
  virtual void to_tokens(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& own,
                         const Tensor& rows) = 0;
  // Ops::combine_backward for tokens and experts on different ranks.
  virtual void combine_backward(ExchangeLabel label, const ExpertTraffic& traffic,
                                const ExpertGates& gates) = 0;

  // Ops::cross_entropy and its gradient over the ids of all ranks. Every rank receives all losses.
  virtual void cross_entropy(const LossShape& shape, const HeadRows& rows) = 0;
  virtual void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) = 0;

  virtual bool broken() const = 0;
};

// For a rank that has the whole model and all positions: exchanges nothing.
class NoExchange final : public ModelExchange {
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

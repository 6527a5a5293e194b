// What a pass over the model asks of the ranks that compute other parts of the same rows. On one rank there is nobody to ask: its
// tensors are whole, and every call returns what it was given. parallel/mesh_exchange.h asks a mesh.
//
// Tensor parallelism with rows split between products (Korthikanti et al., "Reducing activation recomputation in large transformer
// models", 2022): each rank has some heads, MLP columns and ids, and its own T' of the T rows of the residual stream.
//
//   forward    own rows (T', d) ── all_rows ──▶ (T, d) ▶ product by columns … product by rows ▶ partial (T, d) ── sum_rows ──▶ own rows
//   backward   is the mirror: gradients of what sum_rows gave go through all_rows, and those of what all_rows gave are partial sums
//
// Sequence and context parallelism: each rank has some positions of each sequence (token_layout.h), of which attention needs all.
//
//   forward    qkv (T, …) ── to_heads ──▶ attention ▶ out (T, H h)       backward    (out, dout) ▶ attention_backward ▶ dqkv (T, …)
//
// What lies between to_heads and attention is the exchange's own form of qkv and lse, of the same size: layers keep it.
//
// There is one place for all T rows: what all_rows returns is there until the next all_rows or partial_rows, and a product may write
// there what it no longer reads.
//
// Expert parallelism: each of X ranks has E/X experts and tokens of its own. Rows go to their experts and back, by counts that are
// exchanged once routing is done (parallel/expert_exchange.h):
//
//   forward    (R, d) by expert ── to_experts ──▶ (R', d) ▶ experts' products ▶ (R', d) ── to_tokens ──▶ (R, d)
//   backward   gradients of outputs go to_experts, those of inputs to_tokens
//
// Failures are kept, as ParameterBlocks' are. One thread, the pass's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Who asks: a name for the progress page, "layer 3 mlp up all-gather".
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
struct ExchangePlace {
  ExchangeSite site = ExchangeSite::kEmbedding;
  size_t layer = 0;  // of sites that layers have
};

// R rows of the head: logits (R, V') of this rank's ids; targets, weights and losses (R).
struct HeadRows {
  Tensor logits;
  Tensor targets;
  Tensor weights;
  Tensor losses;
};

// A layer's attention, as Ops::attention has it; the shape is of this rank's positions and heads.
struct AttentionLayer {
  AttentionShape shape;
  Tensor qkv;  // (T, qkv_width), after to_heads
  Tensor bias;
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S)
  Workspace workspace;
};

// How many rows a layer's routing sends where, on the host: no exchange of them waits for the device to say it.
struct ExpertCounts {
  std::vector<int32_t> sent;      // (E) of this rank's tokens for each expert
  std::vector<int32_t> received;  // (X, E/X) of each rank's for each of this rank's experts

  int64_t rows_sent() const { return std::accumulate(sent.begin(), sent.end(), int64_t{0}); }
  int64_t rows_received() const {  // R'
    return std::accumulate(received.begin(), received.end(), int64_t{0});
  }
};

// Which rows of a layer are whose. On one rank own_offsets are offsets, and there are no counts.
struct ExpertTraffic {
  Tensor offsets;  // (E + 1) int32, Routing's: of this rank's tokens' rows
  ExpertCounts* counts = nullptr;
  // (E/X + 1) int32: of the rows that come here, which lie by expert, those of an expert by rank
  Tensor own_offsets;
};

// Ops::combine_backward's: slots, gates and dgates (R) of this rank's tokens, act and dact (R', m) of its experts.
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

  // (T, d) of all ranks' own rows.
  virtual Tensor all_rows(ExchangePlace place, const Tensor& own) = 0;
  // Where a product writes a summand of all rows (T, d), of whose sum `own` will be this rank's rows.
  virtual Tensor partial_rows(const Tensor& own) = 0;
  // `own` may be its own place in `partial`.
  virtual void sum_rows(ExchangePlace place, const Tensor& partial, const Tensor& own) = 0;

  // Each number becomes the largest that any of the ranks has which have other columns of the same product.
  virtual void take_largest(ExchangePlace place, const Tensor& numbers) = 0;

  // Own rows of `all` (T*, …), of the tokens of whole sequences, are there: fetches the others.
  virtual void fill_routed(ExchangePlace place, const Tensor& all) = 0;

  // In place, of qkv (T, qkv_width) after RoPE. `shape` is of this rank's positions and heads.
  virtual void to_heads(ExchangePlace place, const AttentionShape& shape, const Tensor& qkv) = 0;
  // Ops::attention and its gradient over all positions. Backward may overwrite layer.out and dout.
  virtual void attention(ExchangePlace place, const AttentionLayer& layer) = 0;
  virtual void attention_backward(ExchangePlace place, const AttentionLayer& layer,
                                  const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                  Accumulate accumulate) = 0;

  // After routing in the forward pass: the counts and own offsets, which waits for the routing. Those of its recomputation are the same,
  // and stay. None of others' rows where it fails.
  virtual void count_rows(ExchangePlace place, const ExpertTraffic& traffic) = 0;
  // `rows` (R, …) and `own` (R', …) are one tensor where there is nobody to send to.
  virtual void to_experts(ExchangePlace place, const ExpertTraffic& traffic, const Tensor& rows,
                          const Tensor& own) = 0;
  virtual void to_tokens(ExchangePlace place, const ExpertTraffic& traffic, const Tensor& own,
                         const Tensor& rows) = 0;
  // Ops::combine_backward where tokens and experts are on different ranks.
  virtual void combine_backward(ExchangePlace place, const ExpertTraffic& traffic,
                                const ExpertGates& gates) = 0;

  // Ops::cross_entropy and its gradient over the ids of all ranks. All of them get all losses.
  virtual void cross_entropy(const LossShape& shape, const HeadRows& rows) = 0;
  virtual void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) = 0;

  virtual bool broken() const = 0;
};

// A rank that has all of everything.
class NoExchange final : public ModelExchange {
 public:
  explicit NoExchange(Ops& ops) : ops_(ops) {}

  Tensor all_rows(ExchangePlace, const Tensor& own) override { return own; }
  Tensor partial_rows(const Tensor& own) override { return own; }
  void sum_rows(ExchangePlace, const Tensor&, const Tensor&) override {}
  void take_largest(ExchangePlace, const Tensor&) override {}
  void fill_routed(ExchangePlace, const Tensor&) override {}
  void to_heads(ExchangePlace, const AttentionShape&, const Tensor&) override {}
  void attention(ExchangePlace, const AttentionLayer& layer) override {
    ops_.attention(layer.shape, layer.qkv, layer.bias, layer.out, layer.lse, layer.workspace);
  }
  void attention_backward(ExchangePlace, const AttentionLayer& layer, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate) override {
    ops_.attention_backward(layer.shape, layer.qkv, layer.bias, layer.out, layer.lse, dout, dqkv,
                            dbias, accumulate, layer.workspace);
  }
  void count_rows(ExchangePlace, const ExpertTraffic&) override {}
  void to_experts(ExchangePlace, const ExpertTraffic&, const Tensor&, const Tensor&) override {}
  void to_tokens(ExchangePlace, const ExpertTraffic&, const Tensor&, const Tensor&) override {}
  void combine_backward(ExchangePlace, const ExpertTraffic&, const ExpertGates& g) override {
    ops_.combine_backward(g.slots, g.gates, g.act, g.dact, g.dgates);
  }
  void cross_entropy(const LossShape& shape, const HeadRows& rows) override {
    ops_.cross_entropy(shape, rows.logits, rows.targets, rows.weights, rows.losses);
  }
  void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) override {
    ops_.cross_entropy_backward(shape, rows.logits, rows.targets, rows.weights, rows.losses);
  }
  bool broken() const override { return false; }

 private:
  Ops& ops_;
};

}  // namespace muster::trainer

// ModelExchange among the ranks of a mesh. Its collectives run on the pass's thread and in the
// computation's order (ProcessGroups::follow); only attention's ring runs beside the computation.
//
// Bytes that a rank sends along tensor, with T ranks that compute R rows, and n = (T - 1) / T R d
// elements of the activations' type (Korthikanti et al., 2022, section 4.2.2). One all_rows or
// sum_rows sends n:
//   forward    embedding n, a layer 4 n, head n and 12 (T - 1) R of the loss
//   backward   head n, a layer 6 n (its two inputs are gathered again), embedding n
// A layer with experts adds (T - 1) / T R k fp32 gradients of gates in the backward pass.
// Recomputed layers repeat the exchange.
//
// Quantized GEMMs add 4 (T - 1) bytes per scale of each operand that is split along the scale's
// dimension (transformer_quantized.cc).
//
// Along sequence and context: see mesh_attention.h. The G ranks along sequence, context and tensor,
// with T' rows each, gather for a layer with experts 4 (G - 1) T' E bytes of router logits forward.
// Passes whose routers read target weights (RoutingShape::weighs_tokens) also gather 4 (G - 1) T'
// bytes of them if sequence or context is more than 1.
//
// Along expert: X ranks divide E experts. In a layer, r rows of this rank's tokens go to other
// ranks' experts, and r' rows of other ranks' tokens come to its own experts; each row has d
// elements of the activations' type:
//   forward     4 (X - 1) E / X of the counts, r d to the experts, r' d back
//   backward    2 r d to the experts (gradients, and their inputs again), r' d back; 4 r of gates
//               there, 4 r' of their gradients back
//   recomputed  r d again
// If tokens are spread evenly over experts, r and r' are (X - 1) / X k times the rank's tokens.
// Each of T tensor ranks sends rows of all their tokens, because each has some columns of every
// expert. Sending only own rows and gathering them at the destination would send 1 / T of these
// bytes along expert, but (T - 1) / T R k d within the tensor group, in place of (T - 1) / T R d.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/parallel/expert_exchange.h"
#include "trainer_core/parallel/mesh_attention.h"
#include "trainer_core/parallel/vocab_loss.h"

namespace muster::trainer {

// Called on one thread. Keeps the first failed collective's error and exchanges nothing after it.
// An error on a device that runs behind the calls appears at a later exchange or in finish(); until
// then passes continue with invalid values.
class MeshExchange final : public ModelExchange {
 public:
  // All arguments must outlive it. `plan` is the plan of this rank of the groups' mesh.
  MeshExchange(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // Blocks until all exchanges that passes have begun are done.
  absl::Status finish();

  Tensor all_rows(ExchangeLabel label, const Tensor& own) override;
  Tensor partial_rows(const Tensor& own) override;
  void sum_rows(ExchangeLabel label, const Tensor& partial, const Tensor& own) override;
  void take_largest(ExchangeLabel label, const Tensor& values) override;
  void fill_routed(ExchangeLabel label, const Tensor& all) override;
  void to_heads(ExchangeLabel label, const AttentionShape& shape, const Tensor& qkv) override;
  void attention(ExchangeLabel label, const AttentionLayer& layer) override;
  void attention_backward(ExchangeLabel label, const AttentionLayer& layer, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate) override;
  void count_rows(ExchangeLabel label, const ExpertTraffic& traffic) override;
  void to_experts(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& rows,
                  const Tensor& own) override;
  void to_tokens(ExchangeLabel label, const ExpertTraffic& traffic, const Tensor& own,
                 const Tensor& rows) override;
  void combine_backward(ExchangeLabel label, const ExpertTraffic& traffic,
                        const ExpertGates& gates) override;
  void cross_entropy(const LossShape& shape, const HeadRows& rows) override;
  void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) override;
  bool broken() const override { return !status_.ok(); }

  // Times of the exchanges beside the computation, since construction.
  CommTimes times() const { return attention_.times(); }

 private:
  bool splits_rows() const { return plan_.part().splits_rows(); }
  Tensor rows_like(const Tensor& own) const;
  SlicedLogits sliced(const HeadRows& rows) const;
  void share_experts(ProcessGroup& group);
  // Runs `exchange` unless an earlier one has failed.
  template <class Exchange>
  void run(const Exchange& exchange);

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  ProcessGroups& groups_;
  ProcessGroup& tensor_;
  ProcessGroup& routers_;  // the ranks with other rows of the same sequences
  MeshAttention attention_;
  std::optional<ExpertExchange> experts_;  // none: each rank has all that it computes with
  GateRows gates_;                         // training only
  absl::Status status_;
};

}  // namespace muster::trainer

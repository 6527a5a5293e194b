// ModelExchange among the ranks of a mesh, in collectives of the pass's thread and in the computation's order (ProcessGroups::follow);
// only attention's ring goes on beside the computation.
//
// Bytes that a rank sends along tensor, with T ranks that compute R rows, n = (T - 1) / T R d numbers of the activations' type
// (Korthikanti et al., 2022, section 4.2.2): an all_rows or a sum_rows is n, so
//   forward    embedding n, a layer 4 n, head n and 12 (T - 1) R of the loss
//   backward   head n, a layer 6 n (its two inputs are gathered again), embedding n
// A layer with experts adds, in fp32, (T - 1) / T R k gradients of gates backward. What a layer recomputes it exchanges again.
//
// Quantized products add 4 (T - 1) bytes a scale of each operand that is split along what the scale is of (transformer_quantized.cc).
//
// Along sequence and context: mesh_attention.h. The G ranks along sequence, context and tensor, of T' rows each, gather for a layer with
// experts 4 (G - 1) T' E of router logits forward, and for a pass whose routers look at them (RoutingShape::weighs_tokens) 4 (G - 1) T' of targets' weights where
// sequence or context is more than 1.
//
// Along expert, with X ranks that share E experts out, a layer of which this rank's tokens have r rows with other ranks' experts, and
// whose own experts have r' rows of other ranks' tokens, of d numbers of the activations' type:
//   forward     4 (X - 1) E / X of the counts, r d to the experts, r' d back
//   backward    2 r d to the experts (gradients, and their inputs again), r' d back; 4 r of gates there, 4 r' of their gradients back
//   recomputed  r d again
// Where all experts are equally liked r and r' are (X - 1) / X k times the rank's tokens. Each of T tensor ranks sends rows of all their
// tokens, because each has some columns of every expert. To send own rows and gather them there would be 1 / T of these bytes, and
// (T - 1) / T R k d within the tensor group for each, in place of (T - 1) / T R d.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/parallel/expert_exchange.h"
#include "trainer_core/parallel/mesh_attention.h"
#include "trainer_core/parallel/vocab_loss.h"

namespace muster::trainer {

// One thread. The first failed collective is kept, and nothing is exchanged after it. What fails on a device that is behind the calls is
// known at a later exchange, or in finish(); until then passes go on with numbers that mean nothing.
class MeshExchange final : public ModelExchange {
 public:
  // All outlive it. `plan` is that of this rank of the groups' mesh.
  MeshExchange(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // Until all that passes have begun is done.
  absl::Status finish();

  Tensor all_rows(ExchangePlace place, const Tensor& own) override;
  Tensor partial_rows(const Tensor& own) override;
  void sum_rows(ExchangePlace place, const Tensor& partial, const Tensor& own) override;
  void take_largest(ExchangePlace place, const Tensor& numbers) override;
  void fill_routed(ExchangePlace place, const Tensor& all) override;
  void to_heads(ExchangePlace place, const AttentionShape& shape, const Tensor& qkv) override;
  void attention(ExchangePlace place, const AttentionLayer& layer) override;
  void attention_backward(ExchangePlace place, const AttentionLayer& layer, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate) override;
  void count_rows(ExchangePlace place, const ExpertTraffic& traffic) override;
  void to_experts(ExchangePlace place, const ExpertTraffic& traffic, const Tensor& rows,
                  const Tensor& own) override;
  void to_tokens(ExchangePlace place, const ExpertTraffic& traffic, const Tensor& own,
                 const Tensor& rows) override;
  void combine_backward(ExchangePlace place, const ExpertTraffic& traffic,
                        const ExpertGates& gates) override;
  void cross_entropy(const LossShape& shape, const HeadRows& rows) override;
  void cross_entropy_backward(const LossShape& shape, const HeadRows& rows) override;
  bool broken() const override { return !status_.ok(); }

  // Of what runs beside the computation, since the beginning.
  CommTimes times() const { return attention_.times(); }

 private:
  bool splits_rows() const { return plan_.part().splits_rows(); }
  Tensor rows_like(const Tensor& own) const;
  SlicedLogits sliced(const HeadRows& rows) const;
  void share_experts(ProcessGroup& group);
  // What `exchange` says, unless something has failed before.
  template <class Exchange>
  void run(const Exchange& exchange);

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  ProcessGroups& groups_;
  ProcessGroup& tensor_;
  ProcessGroup& routers_;  // who has other rows of the same sequences
  MeshAttention attention_;
  std::optional<ExpertExchange> experts_;  // none: each rank has all that it computes with
  GateRows gates_;                         // of a training plan
  absl::Status status_;
};

}  // namespace muster::trainer

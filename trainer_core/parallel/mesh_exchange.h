// Implements ModelExchange among the ranks of a mesh. Collectives run on the thread of the pass and
// in the order of the computation (ProcessGroups::follow); only ring attention runs concurrently
// with the computation.
//
// Data that a rank sends along the tensor axis, which has T ranks that compute R rows: each
// all_rows or sum_rows sends n = (T - 1) / T R d elements of the activation type (Korthikanti et
// al., 2022, section 4.2.2).
//   forward    embedding n, a layer 4 n, head n and 12 (T - 1) R bytes for the loss
//   backward   head n, a layer 6 n (its two inputs are gathered again), embedding n
// A layer with experts also sends (T - 1) / T R k fp32 gradients of gates in the backward pass. A
// layer that is recomputed repeats its forward exchange.
//
// Quantized GEMMs also send 4 (T - 1) bytes per scale of each operand that the ranks split along
// the dimension over which the scale is computed (transformer_quantized.cc).
//
// Along the sequence and context axes, mesh_attention.h states the data of attention. In the
// forward pass of a layer with experts, each of the G ranks along sequence, context and tensor,
// with T' rows each, sends 4 (G - 1) T' E bytes of router logits. If the router reads the weights
// of targets (RoutingShape::weighs_tokens) and several ranks split sequences, each rank also sends
// 4 (G - 1) T' bytes of weights per pass.
//
// Along the expert axis, X ranks divide E experts. In a layer, r rows of this rank's tokens go to
// experts of other ranks, and r' rows of other ranks' tokens come to its own experts. A row has d
// elements of the activation type. A rank sends:
//   forward     4 (X - 1) E / X bytes of counts, r d elements to the experts, r' d back
//   backward    2 r d elements to the experts (gradients, and their inputs again), r' d back;
//               4 r bytes of gates to the experts, 4 r' bytes of their gradients back
//   recomputed  r d elements to the experts again
// If tokens are spread evenly over experts, r and r' are (X - 1) / X k times the rank's tokens.
// Each of T tensor ranks sends the rows of all tokens of its tensor group, because each rank has
// some columns of every expert. An alternative would be that each rank sends only its own rows,
// which the destination gathers. This would send 1 / T of the data along the expert axis, but (T -
// 1) / T R k d instead of (T - 1) / T R d elements along the tensor axis.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/parallel/expert_exchange.h"
#include "trainer_core/parallel/mesh_attention.h"
#include "trainer_core/parallel/vocab_loss.h"

namespace muster::trainer {

// The exchange of one rank. Called on one thread only. After the first error nothing is exchanged.
// Collectives on a device complete after the call has returned; their error then appears in a later
// exchange or in finish(), and until then passes continue with invalid values.
class MeshExchange final : public ModelExchange {
 public:
  // All arguments must outlive this object. `plan` must be that of this rank in the mesh of
  // `groups`.
  MeshExchange(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // Blocks until all exchanges that passes have begun are done. Returns the first error.
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

  // Returns the times of the exchanges that run concurrently with the computation, since
  // construction.
  CommTimes times() const { return attention_.times(); }

 private:
  bool splits_rows() const { return plan_.part().splits_rows(); }
  Tensor rows_like(const Tensor& own) const;
  SlicedLogits sliced(const HeadRows& rows) const;
  void share_experts(ProcessGroup& group);
  // Runs `exchange` unless an earlier exchange has failed.
  template <class Exchange>
  void run(const Exchange& exchange);

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  ProcessGroups& groups_;
  ProcessGroup& tensor_;
  ProcessGroup& routers_;  // ranks with other rows of the same sequences
  MeshAttention attention_;
  std::optional<ExpertExchange> experts_;  // nullopt: no rank needs rows of other ranks' tokens
  GateRows gates_;                         // training only
  absl::Status status_;
};

}  // namespace muster::trainer

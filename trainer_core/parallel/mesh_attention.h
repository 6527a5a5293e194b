// Attention among the ranks of a mesh that have positions of the same sequences: Ulysses along the sequence axis, and between its
// exchanges, which leave a rank all positions of its context rank in a share of the heads, a ring along the context axis.
//
// What a layer keeps for its backward pass is qkv and lse as the ring sees them, which spares their exchange there, and attention's
// output by this rank's positions, which the gradient of the product behind it reads. Every exchange for heads is in place: both
// forms have as many numbers.
//
// Bytes that a rank sends for a layer, with T tokens of a rank, Q ranks along sequence, C along context, e = (Q - 1)/Q T bytes of an
// activation and n = T 2 K h numbers of keys and values:
//   all-to-all   forward e ((H + 2K) h + H h), backward e ((H + 2K) h + 2 H h)
//   send-recv    forward (C - 1) n activations, backward as many again and C n of fp32
// What a layer recomputes it exchanges again.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/model_exchange.h"
#include "trainer_core/model/transformer_plan.h"
#include "trainer_core/parallel/ring_attention.h"
#include "trainer_core/parallel/ulysses.h"

namespace muster::trainer {

// One thread. Fails as the groups do; what is written is not to be used then.
class MeshAttention {
 public:
  // All outlive it. `plan` is that of this rank of the groups' mesh.
  MeshAttention(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // As ModelExchange has them; `name` is the layer's.
  absl::Status to_heads(const AttentionShape& shape, const Tensor& qkv, std::string_view name);
  absl::Status forward(const AttentionLayer& layer, std::string_view name);
  absl::Status backward(const AttentionLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate, std::string_view name);

  // Of the ring, since the beginning.
  CommTimes times() const { return stream_ ? stream_->times() : CommTimes(); }

 private:
  enum class Form : uint8_t { kHeads, kPositions };
  // In place, of a tensor of these column groups.
  absl::Status exchange(Form to, std::span<const int64_t> groups, const Tensor& x,
                        std::string_view name);
  // (T, W) as it lies between exchanges, (Q T, W / Q).
  Tensor of_heads(const Tensor& x) const;
  // This rank's heads' rows of a bias.
  Tensor own_heads(const Tensor& bias) const;
  // The layer between exchanges.
  AttentionLayer attended(const AttentionLayer& layer) const;
  RingLayer ring_layer(const AttentionLayer& attended, std::string_view name) const;

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  AttentionShape shape_;  // between exchanges
  Ulysses ulysses_;
  std::unique_ptr<CommStream> stream_;  // null, as the ring, where nobody else has other positions
  std::unique_ptr<RingAttention> ring_;
};

}  // namespace muster::trainer

// Attention among mesh ranks that have different positions of the same sequences: Ulysses along the
// sequence axis, and a ring along the context axis. Between Ulysses' exchanges a rank has all
// positions of its context rank for a share of the heads; the ring runs there.
//
// A layer keeps for its backward pass qkv and lse in the ring's form, which avoids exchanging them
// again, and attention's output by this rank's positions, which the weight gradient of the
// following GEMM reads. Every exchange of heads is in place: both forms have the same number of
// elements.
//
// Bytes that a rank sends for a layer, with T tokens per rank, Q ranks along sequence, C along
// context, e = (Q - 1)/Q T activation elements in bytes and n = T 2 K h elements of keys and
// values:
//   all-to-all   forward e ((H + 2K) h + H h), backward e ((H + 2K) h + 2 H h)
//   send-recv    forward (C - 1) n activations, backward as many again and C n of fp32
// Recomputed layers repeat the exchange.
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

// Called on one thread. Fails as the groups do; outputs are then invalid.
class MeshAttention {
 public:
  // All arguments must outlive it. `plan` is the plan of this rank of the groups' mesh.
  MeshAttention(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // See ModelExchange; `name` is the layer's.
  absl::Status to_heads(const AttentionShape& shape, const Tensor& qkv, std::string_view name);
  absl::Status forward(const AttentionLayer& layer, std::string_view name);
  absl::Status backward(const AttentionLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate, std::string_view name);

  // Times of the ring since construction.
  CommTimes times() const { return stream_ ? stream_->times() : CommTimes(); }

 private:
  enum class Form : uint8_t { kHeads, kPositions };
  // Exchanges in place a tensor of these column groups.
  absl::Status exchange(Form to, std::span<const int64_t> groups, const Tensor& x,
                        std::string_view name);
  // Views (T, W) in its form between exchanges, (Q T, W / Q).
  Tensor of_heads(const Tensor& x) const;
  // Returns the rows of a bias that belong to this rank's heads.
  Tensor own_heads(const Tensor& bias) const;
  // Returns the layer in its form between exchanges.
  AttentionLayer attended(const AttentionLayer& layer) const;
  RingLayer ring_layer(const AttentionLayer& attended, std::string_view name) const;

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  AttentionShape shape_;  // between exchanges
  Ulysses ulysses_;
  std::unique_ptr<CommStream> stream_;  // null, like ring_, if no other rank has other positions
  std::unique_ptr<RingAttention> ring_;
};

}  // namespace muster::trainer

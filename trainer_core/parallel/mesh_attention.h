// Attention among ranks that have different positions of the same sequences: Ulysses along the
// sequence axis, and ring attention along the context axis. Ulysses first exchanges positions for
// heads, so that each rank has all positions of its context rank for a share of the heads. Ring
// attention runs in this form, and Ulysses then converts its output back.
//
// A layer saves qkv and lse for its backward pass in the form with a share of the heads, so that
// they need not be exchanged again. It saves attention's output in the form with this rank's
// positions, which the weight gradient of the following GEMM reads. Every exchange is in place,
// because both forms have the same number of elements.
//
// The data that a rank sends for a layer depends on T tokens per rank, Q ranks along the sequence
// axis and C ranks along the context axis. With e = (Q - 1)/Q T and n = T 2 K h, in elements of the
// activation type unless stated otherwise:
//   all-to-all   forward e ((H + 2K) h + H h), backward e ((H + 2K) h + 2 H h)
//   send-recv    forward (C - 1) n, backward (C - 1) n and C n fp32 elements
// A layer that is recomputed repeats its forward exchange.
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

// The attention of one rank. Called on one thread only. All calls return the errors of the groups;
// outputs are then invalid.
class MeshAttention {
 public:
  // All arguments must outlive this object. `plan` must be that of this rank in the mesh of
  // `groups`.
  MeshAttention(const TransformerPlan& plan, const Arena& arena, Ops& ops, ProcessGroups& groups);

  // Implement the methods of ModelExchange. `name` is the name of the layer on the progress page.
  absl::Status to_heads(const AttentionShape& shape, const Tensor& qkv, std::string_view name);
  absl::Status forward(const AttentionLayer& layer, std::string_view name);
  absl::Status backward(const AttentionLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate, std::string_view name);

  // Returns the times of ring attention since construction.
  CommTimes times() const { return stream_ ? stream_->times() : CommTimes(); }

 private:
  enum class Form : uint8_t { kHeads, kPositions };
  // Converts a tensor with these column groups (ulysses.h) in place.
  absl::Status exchange(Form to, std::span<const int64_t> groups, const Tensor& x,
                        std::string_view name);
  // Returns a view of the elements of x (T, W) as (Q T, W / Q), the form with a share of the heads.
  Tensor of_heads(const Tensor& x) const;
  // Returns the rows of a relative bias for this rank's share of the heads.
  Tensor own_heads(const Tensor& bias) const;
  // Returns the layer's tensors in the form with a share of the heads.
  AttentionLayer attended(const AttentionLayer& layer) const;
  RingLayer ring_layer(const AttentionLayer& attended, std::string_view name) const;

  const TransformerPlan& plan_;
  const Arena& arena_;
  Ops& ops_;
  AttentionShape shape_;  // has this rank's share of the heads
  Ulysses ulysses_;
  std::unique_ptr<CommStream> stream_;  // null, as ring_, without context parallelism
  std::unique_ptr<RingAttention> ring_;
};

}  // namespace muster::trainer

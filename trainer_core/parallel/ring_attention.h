// Ring attention (Liu et al., "Ring attention with blockwise transformers for near-infinite context", 2023): the ranks of the context
// axis have all heads of some positions, the keys and values of each rank travel once round the ring, and each rank attends with
// its queries to what has just come while the next block is on its way.
//
//   step t = 0 … C - 1: rank r has the block of rank r - t; it sends that on to r + 1 and receives the one of r - t - 1
//   forward             (out, lse) are merged with the block's; what no query sees costs nothing
//   backward            dq stays; a block's dkv travels a step behind it, and one hop more is home
//
// Positions are those of context_positions (token_layout.h), so that each step is as much work on every rank.
//
// Bytes that a rank sends for a layer, with n = B S' 2 K h numbers in a block: forward (C - 1) n of the activations' type, backward as
// many again and C n fp32 gradients, which are fp32 because every rank adds to them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/model/exchange_plan.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Memory of ring_sizes(); its contents need not survive a call.
struct RingBuffers {
  std::array<void*, 2> blocks{};
  float* sums = nullptr;
  float* gradients = nullptr;
  Workspace workspace;
};

// One layer's attention on a rank, as in Ops::attention.
struct RingLayer {
  AttentionShape shape;
  Tensor qkv;
  Tensor bias;
  Tensor out;
  Tensor lse;
  RingBuffers buffers;
  std::string name;  // for the progress page: "layer 3 attention ring"
};

// A rank's place in the ring. One thread at a time. The stream's thread reads and writes the buffers during a call, but not after it,
// also when it has failed.
class RingAttention {
 public:
  // They outlive it. The group is the context axis in its order, and the stream's alone.
  RingAttention(Ops& ops, ProcessGroup& group, CommStream& stream)
      : ops_(ops), group_(group), stream_(stream) {}

  // Ops::attention and Ops::attention_backward, but with the keys of all ranks. Fail as the group does; what is written is not to be
  // used then. dbias gets what this rank's queries contribute.
  absl::Status forward(const RingLayer& layer);
  absl::Status backward(const RingLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate);

 private:
  Positions positions_of(const AttentionShape& shape, int rank) const;
  // The rank whose block is here in step `step`.
  int holder(int step) const;
  // Sends one rank on and receives from the one before.
  CommTicket rotate(const Tensor& outgoing, const Tensor& incoming, const std::string& name);
  // This rank's keys and values, where they start from.
  void take_block(const RingLayer& layer, const Tensor& block);

  Ops& ops_;
  ProcessGroup& group_;
  CommStream& stream_;
};

}  // namespace muster::trainer

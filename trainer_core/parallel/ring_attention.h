// Ring attention (Liu et al., "Ring attention with blockwise transformers for near-infinite
// context", 2023). The C ranks of the context axis form a ring, and each has some positions of each
// sequence. The keys and values of a rank form a block, which is sent once around the ring. Each
// rank computes the attention of its queries to its current block while it receives the next one.
//
//   step t = 0 … C - 1  Rank r has the block of rank r - t, sends it to rank r + 1 and receives the
//                       block of rank r - t - 1.
//   forward             The block's (out, lse) are merged with those of earlier steps. A block to
//                       which no query attends takes no computation.
//   backward            The gradient of queries stays on its rank. The gradient of a block follows
//                       it one step later, and takes one more step to return to the block's rank.
//
// Positions are those of context_positions (token_layout.h), so that a step takes the same time on
// every rank.
//
// A block has n = B S' 2 K h elements of the activation type, for the S' positions of a rank. A
// rank sends (C - 1) n elements per layer in the forward pass, and the same in the backward pass
// together with C n gradients. Gradients are fp32, because every rank adds to them.
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

// The buffers of a call, with the sizes of ring_sizes(). Their contents are not used after the
// call.
struct RingBuffers {
  std::array<void*, 2> blocks{};
  float* sums = nullptr;
  float* gradients = nullptr;
  Workspace workspace;
};

// The arguments of Ops::attention for a layer on this rank, and the buffers.
struct RingLayer {
  AttentionShape shape;
  Tensor qkv;
  Tensor bias;
  Tensor out;
  Tensor lse;
  RingBuffers buffers;
  std::string name;  // name on the progress page: "layer 3 attention ring"
};

// One rank of the ring. Called by one thread at a time. The thread of the stream uses the buffers
// only during a call, even if the call fails.
class RingAttention {
 public:
  // All arguments must outlive this object. `group` is the group along the context axis; only work
  // of `stream` may use it.
  RingAttention(Ops& ops, ProcessGroup& group, CommStream& stream)
      : ops_(ops), group_(group), stream_(stream) {}

  // Compute Ops::attention and Ops::attention_backward over the keys of all ranks. `dbias` receives
  // the contribution of this rank's queries. Return the errors of the group; outputs are then
  // invalid.
  absl::Status forward(const RingLayer& layer);
  absl::Status backward(const RingLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate);

 private:
  Positions positions_of(const AttentionShape& shape, int rank) const;
  // Returns the rank whose block this rank has in step `step`.
  int holder(int step) const;
  // Sends `outgoing` to the next rank and receives `incoming` from the previous one, on the stream.
  CommTicket rotate(const Tensor& outgoing, const Tensor& incoming, const std::string& name);
  // Copies this rank's keys and values to `block`, for step 0.
  void take_block(const RingLayer& layer, const Tensor& block);

  Ops& ops_;
  ProcessGroup& group_;
  CommStream& stream_;
};

}  // namespace muster::trainer

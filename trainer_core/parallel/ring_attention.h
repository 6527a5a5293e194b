// Ring attention (Liu et al., "Ring attention with blockwise transformers for near-infinite
// context", 2023): each rank of the context axis has all heads of some positions. The keys and
// values of each rank travel once round the ring, and each rank attends with its queries to the
// current block while the next one is in transit.
//
//   step t = 0 … C - 1  rank r has the block of rank r - t, sends it to r + 1 and receives the
//                       block of r - t - 1
//   forward             (out, lse) are merged with the block's; blocks that no query sees are free
//   backward            dq stays; a block's dkv travels one step behind it, and one more hop home
//
// Positions follow context_positions (token_layout.h), so that each step is the same work on every
// rank.
//
// Bytes that a rank sends for a layer, with n = B S' 2 K h elements in a block: forward (C - 1) n
// elements of the activations' type; backward the same again and C n fp32 gradients, which are fp32
// because every rank adds to them.
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

// Buffers of ring_sizes(); their contents need not survive a call.
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

// One rank of the ring. One thread at a time. The stream's thread accesses the buffers only during
// a call, also if the call fails.
class RingAttention {
 public:
  // The arguments must outlive it. `group` is the context axis in order; `stream` is its only user.
  RingAttention(Ops& ops, ProcessGroup& group, CommStream& stream)
      : ops_(ops), group_(group), stream_(stream) {}

  // Ops::attention and Ops::attention_backward over the keys of all ranks. Fail as the group does;
  // outputs are then invalid. `dbias` receives this rank's queries' contribution.
  absl::Status forward(const RingLayer& layer);
  absl::Status backward(const RingLayer& layer, const Tensor& dout, const Tensor& dqkv,
                        const Tensor& dbias, Accumulate accumulate);

 private:
  Positions positions_of(const AttentionShape& shape, int rank) const;
  // Returns the rank whose block is here in step `step`.
  int holder(int step) const;
  // Sends to the next rank and receives from the previous one.
  CommTicket rotate(const Tensor& outgoing, const Tensor& incoming, const std::string& name);
  // Copies this rank's keys and values into `block`, where their first step begins.
  void take_block(const RingLayer& layer, const Tensor& block);

  Ops& ops_;
  ProcessGroup& group_;
  CommStream& stream_;
};

}  // namespace muster::trainer

#include "trainer_core/parallel/ring_attention.h"

#include "trainer_core/model/token_layout.h"
#include "trainer_core/parallel/behind_ops.h"

namespace muster::trainer {
namespace {

constexpr int kTravelling = 2;  // a buffer is sent while the other receives

size_t buffer_of(int step) { return static_cast<size_t>(step % kTravelling); }

std::array<Tensor, 2> block_tensors(const RingLayer& layer) {
  const int64_t rows = layer.shape.rows(), width = layer.shape.kv_width();
  const auto block = [&](void* data) { return Tensor::of(layer.qkv.dtype, data, {rows, width}); };
  return {block(layer.buffers.blocks[0]), block(layer.buffers.blocks[1])};
}

// The buffers of the gradients.
struct RingGradients {
  explicit RingGradients(const RingLayer& layer) {
    const AttentionShape& shape = layer.shape;
    float* data = layer.buffers.gradients;
    const auto take = [&](int64_t width) {
      const Tensor tensor = Tensor::f32(data, {shape.rows(), width});
      data += tensor.elements();
      return tensor;
    };
    dq = take(shape.out_width());
    here = take(shape.kv_width());
    travelling = {take(shape.kv_width()), take(shape.kv_width())};
  }

  Tensor dq;
  Tensor here;  // this rank's contribution to its current block
  std::array<Tensor, 2> travelling;
};

// Returns the first error of two waits.
absl::Status both(const absl::Status& a, const absl::Status& b) { return a.ok() ? b : a; }

}  // namespace

Positions RingAttention::positions_of(const AttentionShape& shape, int rank) const {
  return context_positions(shape.seq_len * group_.size(), {rank, group_.size()});
}

int RingAttention::holder(int step) const {
  return (group_.rank() - step + group_.size()) % group_.size();
}

CommTicket RingAttention::rotate(const Tensor& outgoing, const Tensor& incoming,
                                 const std::string& name) {
  const int ranks = group_.size(), next = (group_.rank() + 1) % ranks;
  const int before = (group_.rank() + ranks - 1) % ranks;
  return enqueue_after(ops_, stream_, [this, outgoing, incoming, next, before, name] {
    return group_.send_recv(outgoing, next, incoming, before, name);
  });
}

void RingAttention::take_block(const RingLayer& layer, const Tensor& block) {
  const AttentionShape& shape = layer.shape;
  MUSTER_CHECK(shape.row_positions() == positions_of(shape, group_.rank()))
      << "a rank of the ring with positions from " << shape.row_positions().at(0);
  ops_.copy_columns(layer.qkv, shape.out_width(), block, 0, shape.kv_width());
}

absl::Status RingAttention::forward(const RingLayer& layer) {
  const AttentionShape& shape = layer.shape;
  const std::array<Tensor, 2> blocks = block_tensors(layer);
  const Tensor sums = layer.out.dtype == DType::kF32
                          ? layer.out
                          : Tensor::f32(layer.buffers.sums, {shape.rows(), shape.out_width()});
  take_block(layer, blocks[0]);
  const int last = group_.size() - 1;
  for (int step = 0; step <= last; ++step) {
    const Tensor& here = blocks[buffer_of(step)];
    CommTicket next;
    if (step < last) next = rotate(here, blocks[buffer_of(step + 1)], layer.name);
    ops_.attention_block(shape, layer.qkv, {here, positions_of(shape, holder(step))}, layer.bias,
                         {sums, layer.lse}, step == 0 ? Accumulate::kNo : Accumulate::kYes,
                         layer.buffers.workspace);
    if (absl::Status status = stream_.wait(next); !status.ok()) return status;
  }
  if (layer.out.dtype != DType::kF32) ops_.copy_columns(sums, 0, layer.out, 0, shape.out_width());
  return absl::OkStatus();
}

absl::Status RingAttention::backward(const RingLayer& layer, const Tensor& dout, const Tensor& dqkv,
                                     const Tensor& dbias, Accumulate accumulate) {
  const AttentionShape& shape = layer.shape;
  const std::array<Tensor, 2> blocks = block_tensors(layer);
  const RingGradients gradients(layer);
  ops_.fill(gradients.dq, 0);
  if (shape.buckets.exist() && accumulate == Accumulate::kNo) ops_.fill(dbias, 0);
  take_block(layer, blocks[0]);
  const int last = group_.size() - 1;
  for (int step = 0; step <= last; ++step) {
    const Tensor& here = blocks[buffer_of(step)];
    // Sends the sum of the previous step, and receives the sum of the other ranks for this block.
    const Tensor& arriving = gradients.travelling[buffer_of(step)];
    CommTicket block, gradient;
    if (step > 0)
      gradient = rotate(gradients.travelling[buffer_of(step - 1)], arriving, layer.name);
    if (step < last) block = rotate(here, blocks[buffer_of(step + 1)], layer.name);
    const Tensor& added = step == 0 ? arriving : gradients.here;
    ops_.fill(added, 0);
    ops_.attention_block_backward(shape, layer.qkv, {here, positions_of(shape, holder(step))},
                                  layer.bias, layer.out, layer.lse, dout,
                                  {gradients.dq, added, dbias}, layer.buffers.workspace);
    const absl::Status arrived = stream_.wait(gradient);
    if (absl::Status status = both(arrived, stream_.wait(block)); !status.ok()) return status;
    if (step > 0) ops_.add(arriving, added, arriving);
  }
  const Tensor& home = gradients.travelling[last == 0 ? 0 : buffer_of(last + 1)];
  CommTicket hop;
  if (last > 0) hop = rotate(gradients.travelling[buffer_of(last)], home, layer.name);
  ops_.copy_columns(gradients.dq, 0, dqkv, 0, shape.out_width());
  if (absl::Status status = stream_.wait(hop); !status.ok()) return status;
  ops_.copy_columns(home, 0, dqkv, shape.out_width(), shape.kv_width());
  return absl::OkStatus();
}

}  // namespace muster::trainer

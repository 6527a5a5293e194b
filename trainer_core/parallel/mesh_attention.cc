#include "trainer_core/parallel/mesh_attention.h"

#include <array>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/tensor_views.h"

namespace muster::trainer {
namespace {

// Widths of queries, keys and values.
std::array<int64_t, 3> qkv_groups(const AttentionShape& shape) {
  return {shape.out_width(), shape.kv_width() / 2, shape.kv_width() / 2};
}

}  // namespace

MeshAttention::MeshAttention(const TransformerPlan& plan, const Arena& arena, Ops& ops,
                             ProcessGroups& groups)
    : plan_(plan),
      arena_(arena),
      ops_(ops),
      shape_(plan.attended_shape()),
      ulysses_(ops, groups.of({.axes = {MeshAxis::kSequence}}), plan.batch) {
  if (plan.packed) {
    shape_.starts =
        Tensor::i32(static_cast<int32_t*>(arena.buffer(plan.attention.starts)), {shape_.rows()});
  }
  if (plan.part().context.ranks == 1) return;
  stream_ = CommStream::start([&groups] { groups.abort(); });
  ring_ = std::make_unique<RingAttention>(
      ops, groups.of({.axes = {MeshAxis::kContext}}, kRingChannel), *stream_);
}

Tensor MeshAttention::of_heads(const Tensor& x) const {
  const int64_t ranks = plan_.part().sequence.ranks;
  return tensor_at(x, 0, {x.dim(0) * ranks, x.dim(1) / ranks});
}

absl::Status MeshAttention::exchange(Form to, std::span<const int64_t> groups, const Tensor& x,
                                     std::string_view name) {
  if (plan_.part().sequence.ranks == 1) return absl::OkStatus();
  const Tensor staging =
      Tensor::of(plan_.dtype, arena_.buffer(plan_.attention.staging), {2 * x.elements()});
  const std::string full_name = absl::StrCat(av(name), " all-to-all");
  return to == Form::kHeads ? ulysses_.to_heads(groups, x, of_heads(x), staging, full_name)
                            : ulysses_.to_positions(groups, of_heads(x), x, staging, full_name);
}

absl::Status MeshAttention::to_heads(const AttentionShape& shape, const Tensor& qkv,
                                     std::string_view name) {
  return exchange(Form::kHeads, qkv_groups(shape), qkv, name);
}

Tensor MeshAttention::own_heads(const Tensor& bias) const {
  if (!shape_.buckets.exist()) return {};
  return tensor_at(bias, plan_.part().sequence.index * shape_.bias_elements(),
                   {shape_.heads, shape_.buckets.count});
}

AttentionLayer MeshAttention::attended(const AttentionLayer& layer) const {
  return {.shape = shape_,
          .qkv = of_heads(layer.qkv),
          .bias = own_heads(layer.bias),
          .out = of_heads(layer.out),
          .lse = tensor_at(layer.lse, 0, {shape_.batch, shape_.heads, shape_.seq_len}),
          .workspace = layer.workspace};
}

RingLayer MeshAttention::ring_layer(const AttentionLayer& attended, std::string_view name) const {
  const AttentionBuffers& buffers = plan_.attention;
  const auto if_planned = [&](BufferId id) { return id.exists() ? arena_.f32(id) : nullptr; };
  return {.shape = attended.shape,
          .qkv = attended.qkv,
          .bias = attended.bias,
          .out = attended.out,
          .lse = attended.lse,
          .buffers = {.blocks = {arena_.buffer(buffers.ring_blocks[0]),
                                 arena_.buffer(buffers.ring_blocks[1])},
                      .sums = if_planned(buffers.ring_sums),
                      .gradients = if_planned(buffers.ring_gradients),
                      .workspace = attended.workspace},
          .name = absl::StrCat(av(name), " ring")};
}

absl::Status MeshAttention::forward(const AttentionLayer& layer, std::string_view name) {
  const AttentionLayer attended = this->attended(layer);
  if (ring_) {
    if (auto status = ring_->forward(ring_layer(attended, name)); !status.ok()) return status;
  } else {
    ops_.attention(attended.shape, attended.qkv, attended.bias, attended.out, attended.lse,
                   attended.workspace);
  }
  return exchange(Form::kPositions, std::array{layer.shape.out_width()}, layer.out, name);
}

absl::Status MeshAttention::backward(const AttentionLayer& layer, const Tensor& dout,
                                     const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate,
                                     std::string_view name) {
  for (const Tensor& x : {layer.out, dout}) {
    if (auto status = exchange(Form::kHeads, std::array{layer.shape.out_width()}, x, name);
        !status.ok())
      return status;
  }
  // This rank adds nothing to the gradients of other heads.
  if (shape_.buckets.exist() && shape_.heads != layer.shape.heads && accumulate == Accumulate::kNo)
    ops_.fill(dbias, 0);
  const AttentionLayer attended = this->attended(layer);
  if (ring_) {
    const absl::Status status = ring_->backward(ring_layer(attended, name), of_heads(dout),
                                                of_heads(dqkv), own_heads(dbias), accumulate);
    if (!status.ok()) return status;
  } else {
    ops_.attention_backward(attended.shape, attended.qkv, attended.bias, attended.out, attended.lse,
                            of_heads(dout), of_heads(dqkv), own_heads(dbias), accumulate,
                            attended.workspace);
  }
  return exchange(Form::kPositions, qkv_groups(layer.shape), dqkv, name);
}

}  // namespace muster::trainer

// The CUDA backend's rope and attention.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "trainer_core/ops/cuda/attention/attention.h"
#include "trainer_core/ops/cuda/cuda_ops.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cuda {
namespace {

// Returns the keys and values in qkv, which lie behind the queries.
KeyRows own_keys(const AttentionShape& shape, const Tensor& qkv) {
  return {qkv.float_data(), shape.qkv_width(), shape.out_width(), Runs::of(shape.row_positions())};
}
KeyRows block_keys(const AttentionShape& shape, const KeyValueBlock& keys) {
  return {keys.rows.float_data(), shape.kv_width(), 0, Runs::of(keys.positions)};
}

const int32_t* starts_of(const AttentionShape& shape) {
  if (shape.starts.data == nullptr) return nullptr;
  return shape.starts.i32();
}

void check_head(const AttentionShape& shape) {
  MUSTER_CHECK(shape.head_dim <= kHeadDimMax)
      << "head_dim is " << shape.head_dim << "; attention on the GPU takes at most " << kHeadDimMax;
  // The limit of a grid's second and third dimension.
  constexpr int64_t kGridMax = 65'535;
  MUSTER_CHECK(shape.heads <= kGridMax && shape.batch <= kGridMax)
      << shape.heads << " heads of " << shape.batch << " sequences";
}

}  // namespace

void CudaOps::do_rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                      RopePairs pairs, RopeDirection direction, const Tensor& qkv) {
  cuda::rope(stream_, {.dtype = qkv.dtype,
                       .rows = shape.rows(),
                       .heads = shape.heads + shape.kv_heads,
                       .head_dim = shape.head_dim,
                       .width = shape.qkv_width(),
                       .token_rows = DeviceTokenRows::of(shape.token_rows()),
                       .starts = starts_of(shape),
                       .interleaved = pairs == RopePairs::kInterleaved,
                       .sign = direction == RopeDirection::kForward ? 1.0F : -1.0F,
                       .cos = cos.f32(),
                       .sin = sin.f32(),
                       .qkv = qkv.data,
                       .fault = fault()});
}

AttentionLayer CudaOps::layer_of(const AttentionShape& shape, const Tensor& qkv,
                                 const KeyRows& keys, const Tensor& bias) const {
  check_head(shape);
  return {.dtype = qkv.dtype,
          .batch = shape.batch,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = static_cast<float>(shape.score_scale()),
          .cap = static_cast<float>(shape.soft_cap),
          .window = shape.window,
          .extra_zero = shape.extra_zero,
          .queries = Runs::of(shape.row_positions()),
          .starts = starts_of(shape),
          .qkv = qkv.float_data(),
          .qkv_width = shape.qkv_width(),
          .keys = keys,
          .bias = relative_bias(shape, bias),
          .buckets = Buckets::of(shape.buckets)};
}

namespace {

constexpr const char* kSharedPositions = "ranks share the positions of a sequence";

// Returns the reason why the library does not support the layer; null if it may.
const char* unsupported_reason(const AttentionShape& shape, DType dtype) {
  constexpr int64_t kHeadMultiple = 8;
  if (dtype != DType::kBf16) return "it supports only bf16";
  if (shape.starts.data != nullptr) return "documents are packed into sequences";
  if (!shape.has_first_positions()) return kSharedPositions;
  if (!shape.is_plain()) return "scores have a cap, a bias or an extra zero";
  if (shape.head_dim % kHeadMultiple != 0) return "head_dim is no multiple of 8";
  return nullptr;
}

LibraryAttentionArgs library_layer(const AttentionShape& shape, const Tensor& qkv,
                                   const Tensor& out, const Tensor& lse) {
  const auto* const rows = static_cast<const Bf16*>(qkv.data);
  return {.batch = shape.batch,
          .seq_len = shape.seq_len,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = static_cast<float>(shape.score_scale()),
          .window = shape.window < shape.seq_len ? shape.window : 0,
          .qkv_width = shape.qkv_width(),
          .out_width = shape.out_width(),
          .q = rows,
          .k = rows + shape.out_width(),
          .v = rows + shape.out_width() + shape.kv_width() / 2,
          .out = static_cast<Bf16*>(out.data),
          .lse = lse.f32()};
}

}  // namespace

void CudaOps::note_own_attention(const char* what, const AttentionShape& shape,
                                 const LibraryAnswer& answer) {
  const std::array sizes = {shape.batch, shape.seq_len, shape.heads, shape.kv_heads,
                            shape.head_dim};
  notes_.add(
      "cuDNN", {what, sizes},
      [&] {
        return absl::StrCat(what, " of (B, S, H, K, h) = (", absl::StrJoin(sizes, ", "), ")");
      },
      answer, scratch_.bytes());
}

bool CudaOps::attend_by_library(const char* what, const AttentionShape& shape, const Tensor& qkv,
                                const Tensor& out, const Tensor& lse, const AttentionPartRun& run) {
  if (attention_library_ == nullptr || shape.rows() == 0) return false;
  LibraryAnswer answer;
  if (const char* const why = unsupported_reason(shape, qkv.dtype)) {
    answer = {.kind = LibraryAnswer::Kind::kNone, .why = why};
  } else {
    answer = in_parts(library_layer(shape, qkv, out, lse), run);
  }
  if (!answer.is_done()) note_own_attention(what, shape, answer);
  return answer.is_done();
}

void CudaOps::do_attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                           const Tensor& out, const Tensor& lse, Workspace /*workspace*/) {
  if (attend_by_library("attention", shape, qkv, out, lse,
                        [&](const LibraryAttentionArgs& part, int64_t, int64_t) {
                          return attention_library_->forward(stream_, part, scratch_.data(),
                                                             scratch_.bytes());
                        }))
    return;
  attention_forward(stream_, {.layer = layer_of(shape, qkv, own_keys(shape, qkv), bias),
                              .sums = false,
                              .merge = false,
                              .out = out.data,
                              .lse = lse.f32()});
}

void CudaOps::do_attention_block(const AttentionShape& shape, const Tensor& qkv,
                                 const KeyValueBlock& keys, const Tensor& bias,
                                 const AttentionSums& sums, Accumulate accumulate,
                                 Workspace /*workspace*/) {
  if (attention_library_ != nullptr)
    note_own_attention("attention's blocks", shape,
                       {.kind = LibraryAnswer::Kind::kNone, .why = kSharedPositions});
  attention_forward(stream_, {.layer = layer_of(shape, qkv, block_keys(shape, keys), bias),
                              .sums = true,
                              .merge = accumulate == Accumulate::kYes,
                              .out = sums.out.f32(),
                              .lse = sums.lse.f32()});
}

void CudaOps::do_attention_paged(const AttentionShape& shape, const PagedRows& rows,
                                 const Tensor& qkv, const Tensor& bias, const KvCache& cache,
                                 const Tensor& out, Workspace /*workspace*/) {
  check_head(shape);
  cuda::attention_paged(stream_,
                        {.dtype = qkv.dtype,
                         .rows = shape.rows(),
                         .heads = shape.heads,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .scale = static_cast<float>(shape.score_scale()),
                         .cap = static_cast<float>(shape.soft_cap),
                         .window = shape.window,
                         .extra_zero = shape.extra_zero,
                         .sequences = rows.sequences.i32(),
                         .positions = rows.positions.i32(),
                         .blocks = rows.blocks.i32(),
                         .blocks_per_sequence = rows.blocks_per_sequence(),
                         .block_positions = cache.block_positions(),
                         .qkv = qkv.data,
                         .qkv_width = shape.qkv_width(),
                         .bias = relative_bias(shape, bias),
                         .buckets = Buckets::of(shape.buckets),
                         .keys = cache.keys.data,
                         .values = cache.values.data,
                         .key_scales = cache.is_int8() ? cache.key_scales.f32() : nullptr,
                         .value_scales = cache.is_int8() ? cache.value_scales.f32() : nullptr,
                         .out = out.data});
}

void CudaOps::run_attention_backward(AttentionBackward args, const AttentionShape& shape,
                                     const Tensor& dbias, Accumulate accumulate,
                                     Workspace workspace) {
  MUSTER_CHECK(workspace.elements >= cuda_attention_backward_elements(shape))
      << "workspace of attention_backward is too small";
  const int64_t elements = shape.bias_elements();
  args.dots = workspace.data;
  if (shape.buckets.exist()) args.d_bias = workspace.data + shape.rows() * shape.heads;
  cuda::attention_backward(stream_, args);
  if (!shape.buckets.exist()) return;
  const int64_t tile =
      args.layer.dtype == DType::kBf16 ? kBf16QueryRows : cuda_attention_tile_rows(shape.head_dim);
  add_blocks(stream_, args.d_bias, shape.batch * ((shape.seq_len + tile - 1) / tile), elements,
             elements, accumulate, relative_bias(shape, dbias));
}

void CudaOps::do_attention_backward(const AttentionShape& shape, const Tensor& qkv,
                                    const Tensor& bias, const Tensor& out, const Tensor& lse,
                                    const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                    Accumulate accumulate, Workspace workspace) {
  auto* const rows = static_cast<Bf16*>(dqkv.data);
  const LibraryAttentionGradients gradients{.dout = static_cast<const Bf16*>(dout.data),
                                            .dq = rows,
                                            .dk = rows + shape.out_width(),
                                            .dv = rows + shape.out_width() + shape.kv_width() / 2};
  const LibraryAttentionArgs layer = library_layer(shape, qkv, out, lse);
  if (attend_by_library("attention's backward pass", shape, qkv, out, lse,
                        [&](const LibraryAttentionArgs& part, int64_t sequence, int64_t key_head) {
                          return attention_library_->backward(
                              stream_, part, gradients.part(layer, sequence, key_head),
                              scratch_.data(), scratch_.bytes());
                        }))
    return;
  run_attention_backward({.layer = layer_of(shape, qkv, own_keys(shape, qkv), bias),
                          .out = out.data,
                          .lse = lse.f32(),
                          .dout = dout.data,
                          .add = false,
                          .d_query = dqkv.data,
                          .d_query_width = shape.qkv_width(),
                          .d_keys = dqkv.data,
                          .d_bias = nullptr,
                          .dots = nullptr},
                         shape, dbias, accumulate, workspace);
}

void CudaOps::do_attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                          const KeyValueBlock& keys, const Tensor& bias,
                                          const Tensor& out, const Tensor& lse, const Tensor& dout,
                                          const AttentionBlockGradients& gradients,
                                          Workspace workspace) {
  run_attention_backward({.layer = layer_of(shape, qkv, block_keys(shape, keys), bias),
                          .out = out.data,
                          .lse = lse.f32(),
                          .dout = dout.data,
                          .add = true,
                          .d_query = gradients.dq.f32(),
                          .d_query_width = shape.out_width(),
                          .d_keys = gradients.dkv.f32(),
                          .d_bias = nullptr,
                          .dots = nullptr},
                         shape, gradients.dbias, Accumulate::kYes, workspace);
}

}  // namespace muster::trainer::cuda

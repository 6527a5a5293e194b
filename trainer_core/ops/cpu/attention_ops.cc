// The CPU backend's attention: splits heads among threads.
#include <algorithm>

#include "trainer_core/ops/cpu/attention_layout.h"
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/parallel.h"
#include "trainer_core/ops/cpu/sums.h"
#include "trainer_core/ops/cpu/value_checks.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cpu {
namespace {

// The part of qkv behind the queries.
KeyValueRows own_keys(const AttentionShape& shape, const Tensor& qkv) {
  return {qkv.float_data(), shape.qkv_width(), shape.out_width(), shape.row_positions()};
}

KeyValueRows block_rows(const AttentionShape& shape, const KeyValueBlock& keys) {
  return {keys.rows.float_data(), shape.kv_width(), 0, keys.positions};
}

// Checks the blocks to which the rows attend.
void check_blocks(const AttentionPaged& args, int64_t blocks) {
  for (int64_t row = 0; row < args.shape.rows(); ++row) {
    for (int64_t position = 0; position <= args.positions[row]; position += args.block_positions) {
      const int64_t block = args.block_of(row, position);
      MUSTER_CHECK(block >= 0 && block < blocks) << "block " << block << " of " << blocks;
    }
  }
}

}  // namespace

void CpuOps::attend(const AttentionForward& args, Workspace workspace) {
  const AttentionShape& shape = args.shape;
  const int64_t each = AttentionLayout(shape, args.keys.positions).forward_elements();
  MUSTER_CHECK(workspace.elements >= cpu_attention_elements(shape, args.keys.positions, threads_))
      << "workspace of attention is too small";
  parallel_for(threads_, shape.batch * shape.heads, [&](int64_t begin, int64_t end, int part) {
    attention_tasks(begin, end, args, workspace.data + part * each);
  });
}

void CpuOps::do_attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                          const Tensor& out, const Tensor& lse, Workspace workspace) {
  check_starts(shape);
  attend({.dtype = qkv.dtype,
          .shape = shape,
          .qkv = qkv.data,
          .keys = own_keys(shape, qkv),
          .bias = relative_bias(shape, bias),
          .sums = false,
          .merge = false,
          .out = out.data,
          .lse = lse.f32()},
         workspace);
}

void CpuOps::do_attention_block(const AttentionShape& shape, const Tensor& qkv,
                                const KeyValueBlock& keys, const Tensor& bias,
                                const AttentionSums& sums, Accumulate accumulate,
                                Workspace workspace) {
  check_starts(shape);
  attend({.dtype = qkv.dtype,
          .shape = shape,
          .qkv = qkv.data,
          .keys = block_rows(shape, keys),
          .bias = relative_bias(shape, bias),
          .sums = true,
          .merge = accumulate == Accumulate::kYes,
          .out = sums.out.f32(),
          .lse = sums.lse.f32()},
         workspace);
}

void CpuOps::do_attention_paged(const AttentionShape& shape, const PagedRows& rows,
                                const Tensor& qkv, const Tensor& bias, const KvCache& cache,
                                const Tensor& out, Workspace workspace) {
  const int64_t capacity = rows.blocks_per_sequence() * cache.block_positions();
  const int64_t each = cpu_attention_paged_elements(shape, capacity, 1);
  MUSTER_CHECK(workspace.elements >= each * threads_) << "workspace is too small";
  check_ids(rows.sequences, rows.blocks.dim(0), "sequence");
  check_ids(rows.positions, capacity, "position");
  const int32_t* positions = rows.positions.i32();
  const AttentionPaged args{
      .dtype = qkv.dtype,
      .shape = shape,
      .sequences = rows.sequences.i32(),
      .positions = positions,
      .blocks = rows.blocks.i32(),
      .blocks_per_sequence = rows.blocks_per_sequence(),
      .block_positions = cache.block_positions(),
      .positions_end = 1 + *std::max_element(positions, positions + shape.rows()),
      .qkv = qkv.data,
      .bias = relative_bias(shape, bias),
      .keys = cache.keys.data,
      .values = cache.values.data,
      .key_scales = cache.is_int8() ? cache.key_scales.f32() : nullptr,
      .value_scales = cache.is_int8() ? cache.value_scales.f32() : nullptr,
      .out = out.data};
  check_blocks(args, cache.blocks());
  append_to_cache(args);
  parallel_for(threads_, shape.heads * shape.rows(), [&](int64_t begin, int64_t end, int part) {
    attention_paged_tasks(begin, end, args, workspace.data + part * each);
  });
}

void CpuOps::attend_backward(AttentionBackward args, const Tensor& dbias, Accumulate accumulate,
                             Workspace workspace) {
  const AttentionShape& shape = args.shape;
  const int64_t each = AttentionLayout(shape, args.keys.positions).backward_elements();
  MUSTER_CHECK(workspace.elements >=
               cpu_attention_backward_elements(shape, args.keys.positions, threads_))
      << "workspace of attention_backward is too small";
  // The workspace has the bias gradients of each sequence, then the scratch of the tasks.
  args.d_bias = workspace.data;
  float* const scratch = args.d_bias + shape.batch * shape.bias_elements();
  parallel_for(threads_, shape.batch * shape.kv_heads, [&](int64_t begin, int64_t end, int part) {
    attention_backward_tasks(begin, end, args, scratch + part * each);
  });
  if (!shape.buckets.exist()) return;
  add_blocks(args.d_bias, shape.batch, shape.bias_elements(), shape.bias_elements(), accumulate,
             relative_bias(shape, dbias));
}

void CpuOps::do_attention_backward(const AttentionShape& shape, const Tensor& qkv,
                                   const Tensor& bias, const Tensor& out, const Tensor& lse,
                                   const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                   Accumulate accumulate, Workspace workspace) {
  check_starts(shape);
  attend_backward({.dtype = qkv.dtype,
                   .shape = shape,
                   .qkv = qkv.data,
                   .keys = own_keys(shape, qkv),
                   .bias = relative_bias(shape, bias),
                   .out = out.data,
                   .lse = lse.f32(),
                   .dout = dout.data,
                   .add = false,
                   .d_query = dqkv.data,
                   .d_query_width = shape.qkv_width(),
                   .d_keys = dqkv.data,
                   .d_bias = nullptr},
                  dbias, accumulate, workspace);
}

void CpuOps::do_attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                         const KeyValueBlock& keys, const Tensor& bias,
                                         const Tensor& out, const Tensor& lse, const Tensor& dout,
                                         const AttentionBlockGradients& gradients,
                                         Workspace workspace) {
  check_starts(shape);
  attend_backward({.dtype = qkv.dtype,
                   .shape = shape,
                   .qkv = qkv.data,
                   .keys = block_rows(shape, keys),
                   .bias = relative_bias(shape, bias),
                   .out = out.data,
                   .lse = lse.f32(),
                   .dout = dout.data,
                   .add = true,
                   .d_query = gradients.dq.f32(),
                   .d_query_width = shape.out_width(),
                   .d_keys = gradients.dkv.f32(),
                   .d_bias = nullptr},
                  gradients.dbias, Accumulate::kYes, workspace);
}

}  // namespace muster::trainer::cpu

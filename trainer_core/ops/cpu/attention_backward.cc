// FlashAttention-2's backward pass: scores are recomputed tile by tile from the saved logsumexp. A
// task owns one key/value head, so its gradients are summed in a fixed order without atomics.
#include <algorithm>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/attention_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/attention_layout.h"
#include "trainer_core/ops/cpu/attention_tiles.inc"
#include "trainer_core/ops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

struct BackwardScratch {
  // Operands are in slots.
  float* keys_t;    // tiles of (h, kTile)
  float* values_t;  // tiles of (h, kTile)
  float* keys;      // (tiles * kTile, padded_head)
  float* d_keys;    // (tiles * kTile, padded_head)
  float* d_values;  // (tiles * kTile, padded_head)
  // Probabilities and the gradient of the scores (kTile, kTile). With pairs the GEMMs for keys
  // combine two queries in one slot, stored in the row of the first. The second's rows hold the
  // operand of the GEMM for queries: the first query's gradients in p, the second one's in ds.
  float* p;
  float* ds;
  float* query;        // (kTile, padded_head) as left operands
  float* d_out;        //
  float* query_right;  // and right: of pairs each has half of the tile
  float* d_out_right;  //
  float* d_query;      // (kTile, padded_head)
  float* bias;         // the head's relative biases
  float* d_bias;       // and their gradient, over all its tiles

  BackwardScratch(const AttentionLayout& layout, bool pairs, float* memory)
      : keys_t(memory),
        values_t(keys_t + layout.transposed),
        keys(values_t + layout.transposed),
        d_keys(keys + layout.packed),
        d_values(d_keys + layout.packed),
        p(d_values + layout.packed),
        ds(p + layout.score_tile),
        query(ds + layout.score_tile),
        d_out(query + layout.row_tile),
        query_right(query + (pairs ? layout.row_tile / 2 : 0)),
        d_out_right(d_out + (pairs ? layout.row_tile / 2 : 0)),
        d_query(d_out + layout.row_tile),
        bias(d_query + layout.row_tile),
        d_bias(bias + layout.bias_row) {}
};

// Writes rows of a gradient, or adds them to fp32 ones: to += factor * from. `from` has rows of
// `padded`.
template <class T>
HWY_INLINE void store_rows(bool add, int64_t rows, int64_t h, const float* from, int64_t padded,
                           float factor, void* matrix, int64_t first, int64_t width,
                           int64_t column) {
  const FloatVec by = hn::Set(FloatTag(), factor);
  for (int64_t i = 0; i < rows; ++i, from += padded) {
    if (add) {
      float* to = row_of<float>(matrix, first + i, width) + column;
      for_slices(h, [&](Slice s) { s.store(hn::MulAdd(s.load(from), by, s.load(to)), to); });
    } else {
      T* to = row_of<T>(matrix, first + i, width) + column;
      for_slices(h, [&](Slice s) { s.store(hn::Mul(s.load(from), by), to); });
    }
  }
}

// Per-row values of a tile of queries that convert its scores to gradients.
struct ScoreRows {
  const float* lse;
  const float* big_d;
  float inverse_cap;  // 1 / soft cap; 0 without one
  // The bias gradient of query 0 and the tile's key 0; that of query i lies i elements in front of
  // it. Null: no bias.
  float* d_bias;
};

struct Gradient {
  FloatVec p;
  FloatVec ds;
};

// p = exp(score - lse) and ds = p (dp - D). With a soft cap ds is multiplied by 1 - (score / cap)²,
// bounded because a masked score is far beyond the cap; its p is 0. Adds ds to the gradient of the
// biases.
template <bool kCapped>
HWY_INLINE Gradient score_gradient(const ScoreRows& rows, int64_t i, Slice s, FloatVec score,
                                   FloatVec dp) {
  const FloatTag d;
  const FloatVec p = exp_fast(hn::Sub(score, hn::Set(d, rows.lse[i])));
  FloatVec ds = hn::Mul(p, hn::Sub(dp, hn::Set(d, rows.big_d[i])));
  if constexpr (kCapped) {
    const FloatVec one = hn::Set(d, 1.0F), t = hn::Mul(score, hn::Set(d, rows.inverse_cap));
    ds = hn::Mul(ds, hn::Sub(one, hn::Min(hn::Mul(t, t), one)));
  }
  if (rows.d_bias != nullptr) {
    float* of_keys = rows.d_bias - i;
    s.store(hn::Add(s.load(of_keys), ds), of_keys);
  }
  return {p, ds};
}

// Converts scores and dp in p and ds to GEMM operands, for rows [first, first + count) of a tile.
template <class M, bool kCapped>
HWY_INLINE void score_gradient_rows(int64_t first, int64_t count, int64_t columns,
                                    const ScoreRows& rows, const BackwardScratch& scratch) {
  using S = Slots<M::kFormat, float>;
  for (int64_t i = first; i < first + count; i += M::kDepth) {
    float* p = scratch.p + i * kTile;
    float* ds = scratch.ds + i * kTile;
    for_slices(columns, [&](Slice s) {
      const Gradient one = score_gradient<kCapped>(rows, i, s, s.load(p), s.load(ds));
      if constexpr (!M::kPairs) {
        s.store(one.p, p);
        s.store(one.ds, ds);
      } else {
        Gradient two{hn::Zero(FloatTag()), hn::Zero(FloatTag())};
        if (i + 1 < first + count) {
          two = score_gradient<kCapped>(rows, i + 1, s, s.load(p + kTile), s.load(ds + kTile));
        }
        s.store(S::of(one.p, two.p), p);
        s.store(S::of(one.ds, two.ds), ds);
        s.store(one.ds, reinterpret_cast<Bf16*>(p + kTile));  // not beyond what has been read
        s.store(two.ds, reinterpret_cast<Bf16*>(ds + kTile));
      }
    });
  }
}

template <class T>
HWY_INLINE void rowwise_dots(int64_t rows, int64_t h, HeadRows<T> outs, HeadRows<T> d_outs,
                             float* big_d) {
  const FloatTag d;
  for (int64_t i = 0; i < rows; ++i) {
    const T* a = outs.data + i * outs.stride;
    const T* b = d_outs.data + i * d_outs.stride;
    FloatVec dot = hn::Zero(d);
    for_slices(h, [&](Slice s) { dot = hn::MulAdd(s.load(a), s.load(b), dot); });
    big_d[i] = reduce_sum(dot);
  }
}

// d_query = or += ds k for `rows` rows of a block, which score_gradient_rows has left in p and ds.
template <class M>
HWY_INLINE void query_gradients(int64_t rows, int64_t columns, int64_t padded, const float* p,
                                const float* ds, const float* keys, float* d_query,
                                TileResult result) {
  const int64_t depth = M::slots(columns);
  if constexpr (M::kPairs) {
    const auto every_other = [&](int64_t count, const float* left, float* to) {
      multiply_tile<M::kFormat>(count, padded, depth, {left + kTile, 2 * kTile, 1}, keys, padded,
                                to, 2 * padded, result);
    };
    every_other((rows + 1) / 2, p, d_query);
    every_other(rows / 2, ds, d_query + padded);
  } else {
    multiply_tile<M::kFormat>(rows, padded, depth, {ds, kTile, 1}, keys, padded, d_query, padded,
                              result);
  }
}

// Adds pᵀ dout and dsᵀ q to a tile of d_values and d_keys. On the diagonal a block of keys has no
// queries before its first.
template <class M>
HWY_INLINE void key_gradients(const AttentionLayout& layout, const BackwardScratch& scratch,
                              const SeenTile& seen, int64_t rows) {
  const int64_t padded = layout.padded_head;
  const int64_t block = seen.diagonal ? kDiagonalBlock : kTile;
  for (int64_t key = 0; key < seen.keys.rows; key += block) {
    const int64_t query = seen.diagonal ? key : 0;
    const int64_t keys = std::min(block, seen.keys.rows - key);
    const int64_t corner = query * kTile + key;
    const int64_t to = seen.keys.index * layout.row_tile + key * padded;
    const int64_t depth = M::slots(rows - query), right = query / M::kDepth * padded;
    const auto add = [&](const float* left, const float* rows_of, float* gradient) {
      multiply_tile<M::kFormat>(keys, padded, depth, {left + corner, 1, M::kDepth * kTile},
                                rows_of + right, padded, gradient + to, padded, kAdded);
    };
    add(scratch.p, scratch.d_out_right, scratch.d_values);
    add(scratch.ds, scratch.query_right, scratch.d_keys);
  }
}

// Packs a tile of queries and of their outputs' gradients; big_d = rowsum(dout out).
template <class M>
HWY_INLINE void pack_queries(const AttentionBackward& args, const AttentionLayout& layout,
                             const BackwardScratch& scratch, const HeadTask& task, const Tile& tile,
                             float* big_d) {
  using T = typename M::T;
  const AttentionShape& shape = args.shape;
  const int64_t h = shape.head_dim, padded = layout.padded_head;
  const int64_t row = task.sequence * shape.seq_len + tile.row, column = task.head * h;
  const auto rows_of = [&](const void* matrix, int64_t width) {
    return HeadRows<T>{row_of<T>(matrix, row, width) + column, width};
  };
  const HeadRows<T> queries = rows_of(args.qkv, shape.qkv_width());
  const HeadRows<T> d_outs = rows_of(args.dout, shape.out_width());
  rowwise_dots(tile.rows, h, rows_of(args.out, shape.out_width()), d_outs, big_d);
  if constexpr (M::kPairs) {
    pack_left<M>(queries, tile.rows, h, padded, scratch.query);
    pack_left<M>(d_outs, tile.rows, h, padded, scratch.d_out);
  }
  pack_right<M>(queries, tile.rows, h, padded, scratch.query_right);
  pack_right<M>(d_outs, tile.rows, h, padded, scratch.d_out_right);
}

// One tile of queries against all its keys: adds to d_keys and d_values, makes d_query.
template <class M>
HWY_INLINE void backward_tile(const AttentionBackward& args, const AttentionLayout& layout,
                              const BackwardScratch& scratch, const HeadTask& task,
                              const Tile& queries) {
  constexpr GemmFormat kFormat = M::kFormat;
  const AttentionShape& shape = args.shape;
  const int64_t left_stride = M::slots(layout.padded_head);
  const int64_t h = shape.head_dim, padded = layout.padded_head;
  const int64_t bias_positions = shape.row_positions().end();
  const auto scale = static_cast<float>(shape.score_scale());
  const auto cap = static_cast<float>(shape.soft_cap);
  const float* lse =
      args.lse + (task.sequence * shape.heads + task.head) * shape.seq_len + queries.row;
  float big_d[kTile];
  const Horizon horizon(shape, task.sequence, queries);
  if (!horizon.sees_any(queries, args.keys.positions)) return;
  pack_queries<M>(args, layout, scratch, task, queries, big_d);
  horizon.for_keys(queries, args.keys.positions, [&](const SeenTile& seen) {
    const int64_t j = seen.keys.index;
    seen.for_query_blocks(queries.rows, [&](int64_t from, int64_t count, int64_t columns) {
      float* p = scratch.p + from * kTile;
      float* ds = scratch.ds + from * kTile;
      multiply_tile<kFormat>(count, columns, M::slots(h),
                             {scratch.query + from * left_stride, left_stride, 1},
                             scratch.keys_t + j * M::slots(h) * kTile, kTile, p, kTile,
                             {.accumulate = false, .factor = product_factor<M>(scale)});
      if (shape.buckets.exist()) {
        add_bias(scratch.bias, bias_positions, queries, seen.keys, from, count, columns, scratch.p);
      }
      if (cap > 0) cap_scores(from, count, columns, cap, scratch.p);
      horizon.mask(seen, from, count, columns, scratch.p);
      multiply_tile<kFormat>(
          count, columns, M::slots(h), {scratch.d_out + from * left_stride, left_stride, 1},
          scratch.values_t + j * M::slots(h) * kTile, kTile, ds, kTile, kWritten);
      const ScoreRows score_rows{
          .lse = lse,
          .big_d = big_d,
          .inverse_cap = cap > 0 ? 1 / cap : 0,
          .d_bias = shape.buckets.exist()
                        ? scratch.d_bias +
                              bias_offset(bias_positions, queries.position, seen.keys.position)
                        : nullptr};
      if (cap > 0) {
        score_gradient_rows<M, true>(from, count, columns, score_rows, scratch);
      } else {
        score_gradient_rows<M, false>(from, count, columns, score_rows, scratch);
      }
      query_gradients<M>(count, columns, padded, p, ds, scratch.keys + j * M::kTileSlots * padded,
                         scratch.d_query + from * padded, seen.first ? kWritten : kAdded);
    });
    key_gradients<M>(layout, scratch, seen, queries.rows);
  });
  store_rows<typename M::T>(args.add, queries.rows, h, scratch.d_query, padded, scale, args.d_query,
                            task.sequence * shape.seq_len + queries.row, args.d_query_width,
                            task.head * h);
}

// Keys and values of one head that queries see, and zeros for their gradients.
template <class M>
HWY_INLINE void pack_keys(const AttentionBackward& args, const AttentionLayout& layout,
                          const BackwardScratch& scratch, int64_t sequence, int64_t kv_head) {
  using T = typename M::T;
  const AttentionShape& shape = args.shape;
  const KeyValueRows& keys = args.keys;
  const int64_t h = shape.head_dim, padded = layout.padded_head;
  const auto scale = static_cast<float>(shape.score_scale());
  const auto pack = [&](const Tile& tile, const T* key, const T* value) {
    const int64_t transposed = tile.index * M::slots(h) * kTile;
    pack_transposed<M>({key, keys.width}, tile.rows, h, scale, scratch.keys_t + transposed);
    pack_transposed<M>({value, keys.width}, tile.rows, h, 1.0F, scratch.values_t + transposed);
    pack_right_tile<M>({key, keys.width}, tile.rows, h, padded,
                       scratch.keys + tile.index * M::kTileSlots * padded);
    std::fill_n(scratch.d_keys + tile.index * layout.row_tile, layout.row_tile, 0.0F);
    std::fill_n(scratch.d_values + tile.index * layout.row_tile, layout.row_tile, 0.0F);
  };
  for_seen_rows<T>(shape, keys, sequence, kv_head, pack);
}

// Takes out what has become of those gradients.
template <class T>
HWY_INLINE void store_keys(const AttentionBackward& args, const AttentionLayout& layout,
                           const BackwardScratch& scratch, int64_t sequence, int64_t kv_head) {
  const AttentionShape& shape = args.shape;
  const KeyValueRows& keys = args.keys;
  const int64_t h = shape.head_dim;
  for_seen_keys(shape, sequence, keys.positions, [&](const Tile& tile) {
    const auto store = [&](const float* from, float factor, int64_t column) {
      store_rows<T>(args.add, tile.rows, h, from + tile.index * layout.row_tile, layout.padded_head,
                    factor, args.d_keys, sequence * keys.positions.count() + tile.row, keys.width,
                    column);
    };
    const int64_t column = keys.column + kv_head * h;
    store(scratch.d_keys, static_cast<float>(shape.score_scale()), column);
    store(scratch.d_values, 1.0F, column + shape.kv_heads * h);
  });
}

template <class M>
HWY_INLINE void backward_tasks(int64_t begin, int64_t end, const AttentionBackward& args,
                               float* memory) {
  const AttentionShape& shape = args.shape;
  const AttentionLayout layout(shape, args.keys.positions);
  const BackwardScratch scratch(layout, M::kPairs, memory);
  const int64_t group = shape.heads / shape.kv_heads, buckets = shape.buckets.count;
  const int64_t positions = shape.row_positions().end();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sequence = i / shape.kv_heads, kv = i % shape.kv_heads;
    pack_keys<M>(args, layout, scratch, sequence, kv);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      if (shape.buckets.exist()) {
        spread_bias(shape.buckets, args.bias + head * buckets, positions, scratch.bias);
        std::fill_n(scratch.d_bias, layout.bias_row, 0.0F);
      }
      for_tiles(shape.row_positions(), [&](const Tile& queries) {
        backward_tile<M>(args, layout, scratch, {sequence, head}, queries);
      });
      if (shape.buckets.exist()) {
        gather_bias(shape.buckets, scratch.d_bias, positions,
                    args.d_bias + (sequence * shape.heads + head) * buckets);
      }
    }
    store_keys<typename M::T>(args, layout, scratch, sequence, kv);
  }
}

void attention_backward(int64_t begin, int64_t end, const AttentionBackward& args, float* memory) {
  with_math(args.dtype,
            [&](auto math) { backward_tasks<decltype(math)>(begin, end, args, memory); });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(attention_backward);

void attention_backward_tasks(int64_t begin, int64_t end, const AttentionBackward& args,
                              float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_backward)(begin, end, args, scratch);
}

}  // namespace muster::trainer::cpu
#endif

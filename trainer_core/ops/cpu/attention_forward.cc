// FlashAttention-2's forward pass over tiles of kTile queries and keys: an online softmax, so no
// matrix of S x S scores exists.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/attention_forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/attention_layout.h"
#include "trainer_core/ops/cpu/attention_tiles.inc"
#include "trainer_core/ops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// The softmax of kTile rows while their keys arrive tile by tile.
struct RunningSoftmax {
  float peak[kTile];   // largest score so far
  float total[kTile];  // sum of exp(score - peak)

  // Begins with an extra score of 0 before all others, or without.
  void reset(bool extra_zero) {
    std::fill_n(peak, kTile, extra_zero ? 0.0F : kMasked);
    std::fill_n(total, kTile, extra_zero ? 1.0F : 0.0F);
  }
  // Continues after keys whose softmax denominators have these logarithms.
  void resume(const float* lse, int64_t rows) {
    std::copy_n(lse, rows, peak);
    for (int64_t i = 0; i < rows; ++i) total[i] = has_seen(i) ? 1.0F : 0.0F;
  }
  // Whether there has been a key for row `i` that it sees; while there has been none, `total`
  // counts masked ones. What is not a number has been seen.
  bool has_seen(int64_t i) const { return !(peak[i] <= kMasked); }

  // Replaces `columns` of row `i` of scores by exp(score - new peak), as elements of T. Returns the
  // factor that rescales the previous sums to the new peak.
  template <class T>
  HWY_INLINE float take(int64_t i, int64_t columns, float* scores) {
    const FloatTag d;
    FloatVec largest = hn::Set(d, peak[i]);
    for_slices(columns, [&](Slice s) { largest = hn::Max(largest, s.load(scores)); });
    const float new_peak = reduce_max(largest);
    const FloatVec shift = hn::Set(d, new_peak);
    FloatVec sum = hn::Zero(d);
    for_slices(columns, [&](Slice s) {
      const FloatVec e = exp_fast(hn::Sub(s.load(scores), shift));
      s.store(e, reinterpret_cast<T*>(scores));  // not beyond what has been read
      sum = hn::Add(sum, e);
    });
    const float factor = std::exp(peak[i] - new_peak);
    peak[i] = new_peak;
    total[i] = total[i] * factor + reduce_sum(sum);
    return factor;
  }
};

struct ForwardScratch {
  float* keys_t;  // tiles of (h, kTile) in slots
  float* values;  // (tiles * kTile, padded_head) in slots
  float* scores;  // (kTile, kTile); then a left operand's slots
  float* query;   // (kTile, padded_head) in slots
  float* out;     // (kTile, padded_head)
  float* bias;    // the head's relative biases

  ForwardScratch(const AttentionLayout& layout, float* memory)
      : keys_t(memory),
        values(keys_t + layout.transposed),
        scores(values + layout.packed),
        query(scores + layout.score_tile),
        out(query + layout.row_tile),
        bias(out + layout.row_tile) {}
};

// Calls body(pointer) with row `row` of one head's output.
template <class T, class Body>
HWY_INLINE void with_out(const AttentionForward& args, int64_t row, int64_t head,
                         const Body& body) {
  const int64_t at = row * args.shape.out_width() + head * args.shape.head_dim;
  if (args.sums) {
    body(static_cast<float*>(args.out) + at);
  } else {
    body(static_cast<T*>(args.out) + at);
  }
}

// Initialises the sums of a tile of queries: with the output for other keys, or with none.
template <class T>
HWY_INLINE void begin_tile(const AttentionForward& args, const AttentionLayout& layout,
                           const HeadTask& task, const Tile& queries, const float* lse,
                           RunningSoftmax& softmax, float* sums) {
  const int64_t h = args.shape.head_dim, padded = layout.padded_head;
  std::fill_n(sums, layout.row_tile, 0.0F);
  if (!args.merge) return softmax.reset(args.shape.extra_zero);
  softmax.resume(lse, queries.rows);
  const int64_t first = task.sequence * args.shape.seq_len + queries.row;
  for (int64_t i = 0; i < queries.rows; ++i) {
    with_out<T>(args, first + i, task.head, [&](const auto* from) {
      for_slices(h, [&](Slice s) { s.store(s.load(from), sums + i * padded); });
    });
  }
}

// Stores the final sums: out and lse.
template <class T>
HWY_INLINE void end_tile(const AttentionForward& args, const AttentionLayout& layout,
                         const HeadTask& task, const Tile& queries, const RunningSoftmax& softmax,
                         const float* sums, float* lse) {
  const FloatTag d;
  const int64_t first = task.sequence * args.shape.seq_len + queries.row;
  for (int64_t i = 0; i < queries.rows; ++i) {
    const bool seen = softmax.has_seen(i);
    const FloatVec factor = hn::Set(d, seen ? 1.0F / softmax.total[i] : 0.0F);
    const float* from = sums + i * layout.padded_head;
    with_out<T>(args, first + i, task.head, [&](auto* to) {
      for_slices(args.shape.head_dim, [&](Slice s) { s.store(hn::Mul(s.load(from), factor), to); });
    });
    lse[i] = seen ? softmax.peak[i] + std::log(softmax.total[i]) : kMasked;
  }
}

// A tile of queries of one head against all its keys.
template <class M>
HWY_INLINE void forward_tile(const AttentionForward& args, const AttentionLayout& layout,
                             const ForwardScratch& scratch, const HeadTask& task,
                             const Tile& queries) {
  // The type of the probabilities that multiply values.
  using Probability = std::conditional_t<M::kPairs, Bf16, float>;
  using T = typename M::T;
  const FloatTag d;
  const AttentionShape& shape = args.shape;
  const int64_t h = shape.head_dim, padded = layout.padded_head;
  const int64_t left_stride = M::slots(padded), width = shape.qkv_width();
  float* lse = args.lse + (task.sequence * shape.heads + task.head) * shape.seq_len + queries.row;
  const T* rows = row_of<T>(args.qkv, task.sequence * shape.seq_len + queries.row, width);
  const Horizon horizon(shape, task.sequence, queries);
  if (args.merge && !horizon.sees_any(queries, args.keys.positions)) return;
  RunningSoftmax softmax;
  begin_tile<T>(args, layout, task, queries, lse, softmax, scratch.out);
  const auto cap = static_cast<float>(shape.soft_cap);
  const auto scale = static_cast<float>(shape.score_scale());
  horizon.for_keys(queries, args.keys.positions, [&](const SeenTile& seen) {
    const int64_t j = seen.keys.index;
    if (seen.first)
      pack_left<M>({rows + task.head * h, width}, queries.rows, h, padded, scratch.query);
    seen.for_query_blocks(queries.rows, [&](int64_t first, int64_t count, int64_t columns) {
      float* scores = scratch.scores + first * kTile;
      multiply_tile<M::kFormat>(count, columns, M::slots(h),
                                {scratch.query + first * left_stride, left_stride, 1},
                                scratch.keys_t + j * M::slots(h) * kTile, kTile, scores, kTile,
                                {.accumulate = false, .factor = product_factor<M>(scale)});
      if (shape.buckets.exist()) {
        add_bias(scratch.bias, shape.row_positions().end(), queries, seen.keys, first, count,
                 columns, scratch.scores);
      }
      if (cap > 0) cap_scores(first, count, columns, cap, scratch.scores);
      horizon.mask(seen, first, count, columns, scratch.scores);
      for (int64_t i = first; i < first + count; ++i) {
        const float factor = softmax.take<Probability>(i, columns, scratch.scores + i * kTile);
        if (factor == 1.0F) continue;
        float* row = scratch.out + i * padded;
        for_slices(padded,
                   [&](Slice s) { s.store(hn::Mul(s.load(row), hn::Set(d, factor)), row); });
      }
      multiply_tile<M::kFormat>(count, padded, M::slots(columns), {scores, kTile, 1},
                                scratch.values + j * M::kTileSlots * padded, padded,
                                scratch.out + first * padded, padded, kAdded);
    });
  });
  end_tile<T>(args, layout, task, queries, softmax, scratch.out, lse);
}

// The keys and values of one head that its queries see.
template <class M>
HWY_INLINE void pack_keys(const AttentionForward& args, const AttentionLayout& layout,
                          const ForwardScratch& scratch, int64_t sequence, int64_t kv_head) {
  using T = typename M::T;
  const AttentionShape& shape = args.shape;
  const KeyValueRows& keys = args.keys;
  const int64_t h = shape.head_dim, padded = layout.padded_head;
  const auto scale = static_cast<float>(shape.score_scale());
  const auto pack = [&](const Tile& tile, const T* key, const T* value) {
    pack_transposed<M>({key, keys.width}, tile.rows, h, scale,
                       scratch.keys_t + tile.index * M::slots(h) * kTile);
    pack_right_tile<M>({value, keys.width}, tile.rows, h, padded,
                       scratch.values + tile.index * M::kTileSlots * padded);
  };
  for_seen_rows<T>(shape, keys, sequence, kv_head, pack);
}

template <class M>
HWY_INLINE void forward_tasks(int64_t begin, int64_t end, const AttentionForward& args,
                              float* memory) {
  const AttentionShape& shape = args.shape;
  const AttentionLayout layout(shape, args.keys.positions);
  const ForwardScratch scratch(layout, memory);
  const int64_t group = shape.heads / shape.kv_heads;
  int64_t packed = -1;  // the (sequence, key/value head) in scratch
  for (int64_t i = begin; i < end; ++i) {
    const HeadTask task{i / shape.heads, i % shape.heads};
    if (i / group != packed) {
      packed = i / group;
      pack_keys<M>(args, layout, scratch, task.sequence, task.head / group);
    }
    if (shape.buckets.exist()) {
      spread_bias(shape.buckets, args.bias + task.head * shape.buckets.count,
                  shape.row_positions().end(), scratch.bias);
    }
    for_tiles(shape.row_positions(),
              [&](const Tile& queries) { forward_tile<M>(args, layout, scratch, task, queries); });
  }
}

void attention_forward(int64_t begin, int64_t end, const AttentionForward& args, float* memory) {
  with_math(args.dtype,
            [&](auto math) { forward_tasks<decltype(math)>(begin, end, args, memory); });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(attention_forward);

void attention_tasks(int64_t begin, int64_t end, const AttentionForward& args, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_forward)(begin, end, args, scratch);
}

}  // namespace muster::trainer::cpu
#endif

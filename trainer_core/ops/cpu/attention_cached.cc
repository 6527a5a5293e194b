// Attention of a few new positions over the keys and values of all earlier ones. A decoding step
// reads the cache once and does little with it: scores of a whole row fit in scratch, so there are
// no tiles and no online softmax.
#include <algorithm>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/attention_cached.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/attention_bias.h"
#include "trainer_core/ops/cpu/exp.inc"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Rows that are read side by side: enough independent sums to hide the latency of an addition.
constexpr int64_t kRowsAtOnce = 4;

// scores[j] = query · keys[j] for `count` rows of `h`.
template <class T>
HWY_INLINE void score_rows(const T* query, const T* keys, int64_t count, int64_t h, float* scores) {
  const FloatTag d;
  int64_t j = 0;
  for (; j + kRowsAtOnce <= count; j += kRowsAtOnce, keys += kRowsAtOnce * h) {
    FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for_slices(h, [&](Slice s) {
      const FloatVec q = s.load(query);
      s0 = hn::MulAdd(q, s.load(keys), s0);
      s1 = hn::MulAdd(q, s.load(keys + h), s1);
      s2 = hn::MulAdd(q, s.load(keys + 2 * h), s2);
      s3 = hn::MulAdd(q, s.load(keys + 3 * h), s3);
    });
    scores[j] = reduce_sum(s0);
    scores[j + 1] = reduce_sum(s1);
    scores[j + 2] = reduce_sum(s2);
    scores[j + 3] = reduce_sum(s3);
  }
  for (; j < count; ++j, keys += h) {
    FloatVec sum = hn::Zero(d);
    for_slices(h, [&](Slice s) { sum = hn::MulAdd(s.load(query), s.load(keys), sum); });
    scores[j] = reduce_sum(sum);
  }
}

// scores[j] = exp(scores[j] - their maximum); returns 1 / their sum. With an extra score of 0,
// which is not stored.
HWY_INLINE float exp_scores(int64_t count, bool extra_zero, float* scores) {
  const FloatTag d;
  constexpr float kLowest = -3e38F;
  FloatVec largest = hn::Set(d, extra_zero ? 0.0F : kLowest);
  for_slices(count, [&](Slice s) { largest = hn::Max(largest, s.load(scores, kLowest)); });
  const float top = reduce_max(largest);
  const FloatVec peak = hn::Set(d, top);
  FloatVec sum = hn::Zero(d);
  for_slices(count, [&](Slice s) {
    const FloatVec e = exp_fast(hn::Sub(s.load(scores, kLowest), peak));
    s.store(e, scores);
    sum = hn::Add(sum, e);
  });
  return 1.0F / (reduce_sum(sum) + (extra_zero ? std::exp(-top) : 0.0F));
}

// out (h) = factor * sum of scores[j] values[j].
template <class T>
HWY_INLINE void weigh_rows(const float* scores, const T* values, int64_t count, int64_t h,
                           float factor, T* out) {
  const FloatTag d;
  for_slices(h, [&](Slice s) {
    FloatVec sums[kRowsAtOnce] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const T* row = values;
    int64_t j = 0;
    for (; j + kRowsAtOnce <= count; j += kRowsAtOnce, row += kRowsAtOnce * h) {
      for (int64_t i = 0; i < kRowsAtOnce; ++i)
        sums[i] = hn::MulAdd(hn::Set(d, scores[j + i]), s.load(row + i * h), sums[i]);
    }
    for (; j < count; ++j, row += h)
      sums[0] = hn::MulAdd(hn::Set(d, scores[j]), s.load(row), sums[0]);
    const FloatVec sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
    s.store(hn::Mul(sum, hn::Set(d, factor)), out);
  });
}

template <class T>
HWY_INLINE void cached_tasks(int64_t begin, int64_t end, const AttentionCached& args,
                             float* scores) {
  const AttentionShape& shape = args.shape;
  float* bias = scores + args.capacity;
  const int64_t positions = args.position + shape.seq_len;
  const FloatTag d;
  const int64_t h = shape.head_dim;
  const FloatVec scale = hn::Set(d, static_cast<float>(shape.score_scale()));
  for (int64_t task = begin; task < end; ++task) {
    const int64_t sequence = task / shape.heads, head = task % shape.heads;
    const int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const int64_t cache = (sequence * shape.kv_heads + kv_head) * args.capacity * h;
    if (shape.buckets.exist())
      spread_bias(shape.buckets, args.bias + head * shape.buckets.count, positions, bias);
    for (int64_t i = 0; i < shape.seq_len; ++i) {
      const int64_t row = sequence * shape.seq_len + i, last = args.position + i;
      const int64_t first = shape.window == 0 ? 0 : std::max<int64_t>(0, last - shape.window + 1);
      const int64_t count = last + 1 - first;
      score_rows(row_of<T>(args.qkv, row, shape.qkv_width()) + head * h,
                 static_cast<const T*>(args.keys) + cache + first * h, count, h, scores);
      for_slices(count, [&](Slice s) { s.store(hn::Mul(s.load(scores), scale), scores); });
      if (shape.buckets.exist()) {
        const float* of_keys = bias + bias_offset(positions, last, first);
        for_slices(count,
                   [&](Slice s) { s.store(hn::Add(s.load(scores), s.load(of_keys)), scores); });
      }
      if (shape.soft_cap > 0) cap_row(count, static_cast<float>(shape.soft_cap), scores);
      const float factor = exp_scores(count, shape.extra_zero, scores);
      weigh_rows(scores, static_cast<const T*>(args.values) + cache + first * h, count, h, factor,
                 row_of<T>(args.out, row, shape.out_width()) + head * h);
    }
  }
}

void attention_cached(int64_t begin, int64_t end, const AttentionCached& args, float* scores) {
  with_type(args.dtype,
            [&](auto number) { cached_tasks<decltype(number)>(begin, end, args, scores); });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(attention_cached);

void append_to_cache(const AttentionCached& args) {
  const AttentionShape& shape = args.shape;
  // Numbers are moved as bytes.
  const int64_t h = shape.head_dim * static_cast<int64_t>(dtype_bytes(args.dtype));
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const char* keys = static_cast<const char*>(args.qkv) +
                       (row * (shape.heads + 2 * shape.kv_heads) + shape.heads) * h;
    const char* values = keys + shape.kv_heads * h;
    const int64_t sequence = row / shape.seq_len;
    const int64_t position = args.position + row % shape.seq_len;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t cache = sequence * shape.kv_heads + head;
      const int64_t slot = (cache * args.capacity + position) * h;
      std::copy_n(keys + head * h, h, static_cast<char*>(args.keys) + slot);
      std::copy_n(values + head * h, h, static_cast<char*>(args.values) + slot);
    }
  }
}

void attention_cached_tasks(int64_t begin, int64_t end, const AttentionCached& args,
                            float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_cached)(begin, end, args, scratch);
}

}  // namespace muster::trainer::cpu
#endif

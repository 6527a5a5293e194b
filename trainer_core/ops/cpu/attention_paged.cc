// Attention of a few new rows over the keys and values of all earlier positions of their sequences,
// which are in blocks of the cache. A decoding step reads the cache once and does little with it:
// scores of a whole row fit in scratch, so there are no tiles and no online softmax.
#include <algorithm>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/attention_paged.cc"
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

template <class T>
HWY_INLINE FloatVec load_cached(Slice s, const T* row) {
  return s.load(row);
}
HWY_INLINE FloatVec load_cached(Slice s, const int8_t* row) {
  const FloatTag d;
  if (s.whole) {
    const auto bytes = hn::LoadU(hn::Rebind<int8_t, FloatTag>(), row + s.begin);
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<FloatTag>(), bytes));
  }
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t i = 0; i < s.count; ++i) buffer[i] = row[s.begin + i];
  return hn::Load(d, buffer);
}

// scores[j] = query · keys[j] for `count` rows of `h`.
template <class T, class C>
HWY_INLINE void score_rows(const T* query, const C* keys, int64_t count, int64_t h, float* scores) {
  const FloatTag d;
  int64_t j = 0;
  for (; j + kRowsAtOnce <= count; j += kRowsAtOnce, keys += kRowsAtOnce * h) {
    FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for_slices(h, [&](Slice s) {
      const FloatVec q = s.load(query);
      s0 = hn::MulAdd(q, load_cached(s, keys), s0);
      s1 = hn::MulAdd(q, load_cached(s, keys + h), s1);
      s2 = hn::MulAdd(q, load_cached(s, keys + 2 * h), s2);
      s3 = hn::MulAdd(q, load_cached(s, keys + 3 * h), s3);
    });
    scores[j] = reduce_sum(s0);
    scores[j + 1] = reduce_sum(s1);
    scores[j + 2] = reduce_sum(s2);
    scores[j + 3] = reduce_sum(s3);
  }
  for (; j < count; ++j, keys += h) {
    FloatVec sum = hn::Zero(d);
    for_slices(h, [&](Slice s) { sum = hn::MulAdd(s.load(query), load_cached(s, keys), sum); });
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

// Calls body(offset, count, done) for each stretch of the positions [first, last] in one block:
// `count` rows of `h` elements from element `offset` of a cache on, after `done` earlier positions.
template <class Body>
HWY_INLINE void for_stretches(const AttentionPaged& args, int64_t row, int64_t kv_head,
                              int64_t first, int64_t last, const Body& body) {
  const int64_t size = args.block_positions, h = args.shape.head_dim;
  for (int64_t position = first; position <= last;) {
    const int64_t inside = position % size;
    const int64_t count = std::min(size - inside, last + 1 - position);
    const int64_t block = args.block_of(row, position);
    body(((block * args.shape.kv_heads + kv_head) * size + inside) * h, count, position - first);
    position += count;
  }
}

// out (h) = factor * sum of scores[j] values[j] over the positions [first, last].
template <class C, class T>
HWY_INLINE void weigh_rows(const AttentionPaged& args, int64_t row, int64_t kv_head, int64_t first,
                           int64_t last, const float* scores, float factor, T* out) {
  const FloatTag d;
  const int64_t h = args.shape.head_dim;
  for_slices(h, [&](Slice s) {
    FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for_stretches(args, row, kv_head, first, last,
                  [&](int64_t offset, int64_t count, int64_t done) {
                    const C* value = static_cast<const C*>(args.values) + offset;
                    const float* score = scores + done;
                    int64_t j = 0;
                    for (; j + kRowsAtOnce <= count; j += kRowsAtOnce, value += kRowsAtOnce * h) {
                      s0 = hn::MulAdd(hn::Set(d, score[j]), load_cached(s, value), s0);
                      s1 = hn::MulAdd(hn::Set(d, score[j + 1]), load_cached(s, value + h), s1);
                      s2 = hn::MulAdd(hn::Set(d, score[j + 2]), load_cached(s, value + 2 * h), s2);
                      s3 = hn::MulAdd(hn::Set(d, score[j + 3]), load_cached(s, value + 3 * h), s3);
                    }
                    for (; j < count; ++j, value += h)
                      s0 = hn::MulAdd(hn::Set(d, score[j]), load_cached(s, value), s0);
                  });
    const FloatVec sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    s.store(hn::Mul(sum, hn::Set(d, factor)), out);
  });
}

// Multiplies scores of the positions [first, last] by the scales of the cache.
HWY_INLINE void apply_scales(const AttentionPaged& args, int64_t row, int64_t kv_head,
                             int64_t first, int64_t last, const float* scales, float* scores) {
  for_stretches(args, row, kv_head, first, last, [&](int64_t offset, int64_t count, int64_t done) {
    const float* scale = scales + offset / args.shape.head_dim;
    for (int64_t j = 0; j < count; ++j) scores[done + j] *= scale[j];
  });
}

// T: the type of activations; C: that of the cache.
template <class T, class C>
HWY_INLINE void paged_tasks(int64_t begin, int64_t end, const AttentionPaged& args, float* scores) {
  const AttentionShape& shape = args.shape;
  float* bias = scores + args.blocks_per_sequence * args.block_positions;
  const FloatTag d;
  const int64_t h = shape.head_dim, rows = shape.seq_len;
  const FloatVec scale = hn::Set(d, static_cast<float>(shape.score_scale()));
  for (int64_t task = begin; task < end; ++task) {
    const int64_t head = task / rows, row = task % rows;
    const int64_t kv_head = head / (shape.heads / shape.kv_heads);
    if (shape.buckets.exist() && (task == begin || row == 0))
      spread_bias(shape.buckets, args.bias + head * shape.buckets.count, args.positions_end, bias);
    const int64_t last = args.positions[row];
    const int64_t first = shape.window == 0 ? 0 : std::max<int64_t>(0, last - shape.window + 1);
    const int64_t positions = last + 1 - first;
    const T* query = row_of<T>(args.qkv, row, shape.qkv_width()) + head * h;
    for_stretches(
        args, row, kv_head, first, last, [&](int64_t offset, int64_t count, int64_t done) {
          score_rows(query, static_cast<const C*>(args.keys) + offset, count, h, scores + done);
        });
    if (args.key_scales != nullptr)
      apply_scales(args, row, kv_head, first, last, args.key_scales, scores);
    for_slices(positions, [&](Slice s) { s.store(hn::Mul(s.load(scores), scale), scores); });
    if (shape.buckets.exist()) {
      const float* of_keys = bias + bias_offset(args.positions_end, last, first);
      for_slices(positions,
                 [&](Slice s) { s.store(hn::Add(s.load(scores), s.load(of_keys)), scores); });
    }
    if (shape.soft_cap > 0) cap_row(positions, static_cast<float>(shape.soft_cap), scores);
    const float factor = exp_scores(positions, shape.extra_zero, scores);
    if (args.value_scales != nullptr)
      apply_scales(args, row, kv_head, first, last, args.value_scales, scores);
    weigh_rows<C>(args, row, kv_head, first, last, scores, factor,
                  row_of<T>(args.out, row, shape.out_width()) + head * h);
  }
}

void attention_paged(int64_t begin, int64_t end, const AttentionPaged& args, float* scores) {
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    if (args.key_scales != nullptr) return paged_tasks<T, int8_t>(begin, end, args, scores);
    paged_tasks<T, T>(begin, end, args, scores);
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(attention_paged);

// Rounds `h` elements to int8 and returns their scale: the largest magnitude becomes 127. The scale
// is NaN if an element is not finite. Rows so small that the factor would overflow become 0.
template <class T>
float round_to_int8(const T* from, int64_t h, int8_t* to) {
  constexpr float kLargest = 127, kSmallest = 1e-36F;
  float largest = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < h; ++i) {
    const float magnitude = std::abs(to_float(from[i]));
    is_finite = is_finite && std::isfinite(magnitude);
    largest = std::max(largest, magnitude);
  }
  if (!is_finite || largest < kSmallest) {
    std::fill_n(to, h, int8_t{0});
    return is_finite ? 0.0F : std::nanf("");
  }
  const float factor = kLargest / largest;
  for (int64_t i = 0; i < h; ++i)
    to[i] = static_cast<int8_t>(std::lrint(to_float(from[i]) * factor));
  return largest / kLargest;
}

template <class T>
void append_rows(const AttentionPaged& args) {
  const AttentionShape& shape = args.shape;
  const int64_t h = shape.head_dim;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const T* keys = static_cast<const T*>(args.qkv) +
                    (row * (shape.heads + 2 * shape.kv_heads) + shape.heads) * h;
    const T* values = keys + shape.kv_heads * h;
    const int64_t block = args.block_of(row, args.positions[row]);
    const int64_t inside = args.positions[row] % args.block_positions;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t place = (block * shape.kv_heads + head) * args.block_positions + inside;
      if (args.key_scales != nullptr) {
        args.key_scales[place] =
            round_to_int8(keys + head * h, h, static_cast<int8_t*>(args.keys) + place * h);
        args.value_scales[place] =
            round_to_int8(values + head * h, h, static_cast<int8_t*>(args.values) + place * h);
      } else {
        std::copy_n(keys + head * h, h, static_cast<T*>(args.keys) + place * h);
        std::copy_n(values + head * h, h, static_cast<T*>(args.values) + place * h);
      }
    }
  }
}

void append_to_cache(const AttentionPaged& args) {
  args.dtype == DType::kBf16 ? append_rows<Bf16>(args) : append_rows<float>(args);
}

void attention_paged_tasks(int64_t begin, int64_t end, const AttentionPaged& args, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_paged)(begin, end, args, scratch);
}

}  // namespace muster::trainer::cpu
#endif

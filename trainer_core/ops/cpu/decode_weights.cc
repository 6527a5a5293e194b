// The values of frozen weights that are stored in blocks (base/weight_blocks.h).
#include <array>
#include <type_traits>

#include "trainer_core/base/bf16.h"
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {
namespace {

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return Bf16::round(x);
  } else {
    return x;
  }
}

// Decodes blocks [begin, end).
template <class T>
void decode_nf4(int64_t begin, int64_t end, const uint8_t* codes, const float* scales, T* out) {
  constexpr int kHalf = 4, kMask = 15;
  for (int64_t block = begin; block < end; ++block) {
    std::array<T, kNf4Values.size()> values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = rounded<T>(kNf4Values[i] * scales[block]);
    const uint8_t* const from = codes + block * kWeightBlock / 2;
    T* const to = out + block * kWeightBlock;
    for (int64_t i = 0; i < kWeightBlock / 2; ++i) {
      to[2 * i] = values[from[i] >> kHalf];
      to[2 * i + 1] = values[from[i] & kMask];
    }
  }
}

template <class T>
void decode_int8(int64_t begin, int64_t end, const int8_t* codes, const float* scales, T* out) {
  for (int64_t block = begin; block < end; ++block) {
    for (int64_t i = block * kWeightBlock; i < (block + 1) * kWeightBlock; ++i)
      out[i] = rounded<T>(static_cast<float>(codes[i]) * scales[block] * kInt8Step);
  }
}

}  // namespace

void CpuOps::do_decode_weights(const WeightBlocks& blocks, const Tensor& out) {
  const auto decode = [&](auto* to) {
    parallel_for(useful_threads(threads_, out.elements()), blocks.scales.elements(),
                 [&](int64_t begin, int64_t end, int) {
                   if (blocks.type == WeightType::kNf4) {
                     decode_nf4(begin, end, static_cast<const uint8_t*>(blocks.codes.data),
                                blocks.scales.f32(), to);
                   } else {
                     decode_int8(begin, end, static_cast<const int8_t*>(blocks.codes.data),
                                 blocks.scales.f32(), to);
                   }
                 });
  };
  if (out.dtype == DType::kBf16) {
    decode(static_cast<Bf16*>(out.data));
  } else {
    decode(out.f32());
  }
}

}  // namespace muster::trainer::cpu

#include "trainer_core/comm/reduce.h"

#include <algorithm>
#include <array>

#include "trainer_core/base/check.h"

// Compiles a copy of a function for each vector width. The order of additions is the same in all
// copies, so all give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MUSTER_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MUSTER_VECTOR_CLONES
#endif

namespace muster::trainer {
namespace {

// The number of sums that are computed at a time: they remain in the L1 cache while all
// contributions are added.
constexpr size_t kRun = 512;

template <Reduction kReduction>
float combined(float a, float b) {
  if constexpr (kReduction == Reduction::kSum) {
    return a + b;
  } else {
    return b > a || b != b ? b : a;  // if `a` is NaN, both comparisons are false for any number b
  }
}

template <Reduction kReduction, class In, class Out>
MUSTER_VECTOR_CLONES void combine_as(std::span<const std::byte* const> contributions, Out* out,
                                     size_t count) {
  std::array<float, kRun> sum;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  for (size_t at = 0; at < count; at += kRun) {
    const size_t run = std::min(kRun, count - at);
    const auto contribution = [&](size_t v) {
      return reinterpret_cast<const In*>(contributions[v]) + at;
    };
    const In* first = contribution(0);
    for (size_t i = 0; i < run; ++i) sum[i] = to_float(first[i]);
    size_t v = 1;
    for (; v + 2 < contributions.size(); v += 3) {
      const In *a = contribution(v), *b = contribution(v + 1), *c = contribution(v + 2);
      for (size_t i = 0; i < run; ++i) {
        const float two =
            combined<kReduction>(combined<kReduction>(sum[i], to_float(a[i])), to_float(b[i]));
        sum[i] = combined<kReduction>(two, to_float(c[i]));
      }
    }
    for (; v < contributions.size(); ++v) {
      const In* next = contribution(v);
      for (size_t i = 0; i < run; ++i) sum[i] = combined<kReduction>(sum[i], to_float(next[i]));
    }
    for (size_t i = 0; i < run; ++i) out[at + i] = from_float<Out>(sum[i]);
  }
}

template <Reduction kReduction, class In>
void combine_from(std::span<const std::byte* const> contributions, BufferView out) {
  if (out.dtype == DType::kF32) {
    combine_as<kReduction, In>(contributions, reinterpret_cast<float*>(out.data), out.count);
  } else {
    combine_as<kReduction, In>(contributions, reinterpret_cast<Bf16*>(out.data), out.count);
  }
}

template <Reduction kReduction>
void combine_by(DType in, std::span<const std::byte* const> contributions, BufferView out) {
  if (in == DType::kF32) {
    combine_from<kReduction, float>(contributions, out);
  } else {
    combine_from<kReduction, Bf16>(contributions, out);
  }
}

}  // namespace

void combine_contributions(Reduction reduction, DType in,
                           std::span<const std::byte* const> contributions, BufferView out) {
  MUSTER_CHECK(in != DType::kI32 && out.dtype != DType::kI32) << "int32 elements are not added";
  if (reduction == Reduction::kSum) {
    combine_by<Reduction::kSum>(in, contributions, out);
  } else {
    combine_by<Reduction::kMax>(in, contributions, out);
  }
}

}  // namespace muster::trainer

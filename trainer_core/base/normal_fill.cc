#include "trainer_core/base/normal_fill.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "common/random/normal.h"
#include "common/random/philox.h"

namespace muster::trainer {

void fill_normal(const NormalStream& values, int64_t first, std::span<float> out) {
  constexpr size_t kChunk = 256;  // words computed at a time: they remain in the L1 cache
  constexpr size_t kWords = std::tuple_size_v<Philox::Block>;
  const Philox philox{.key = values.key, .stream = values.stream};
  const auto factor = static_cast<float>(values.std);
  std::array<uint32_t, kChunk> words{};
  std::array<float, kChunk> chunk{};
  // The number of values of the first chunk that precede `first`.
  size_t before = static_cast<size_t>(first) % kWords;
  auto position = static_cast<uint64_t>(first) / kWords;
  while (!out.empty()) {
    philox.fill(position, std::span(words));
    for (size_t j = 0; j < chunk.size(); ++j) chunk[j] = factor * normal_from_bits(words[j]);
    const size_t count = std::min(kChunk - before, out.size());
    std::copy_n(chunk.begin() + static_cast<ptrdiff_t>(before), count, out.begin());
    out = out.subspan(count);
    position += kChunk / kWords;
    before = 0;
  }
}

}  // namespace muster::trainer

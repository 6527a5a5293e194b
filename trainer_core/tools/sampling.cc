#include "trainer_core/tools/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/random/philox.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kSamplingStream = uint64_t{3} << 48;

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t position) {
  const auto best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (options.temperature <= 0) return best;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties are ordered by id, so that the order does not depend on the sort algorithm.
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size())
    order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> weights;
  double total = 0;
  for (const int32_t id : order) {
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) -
                                static_cast<double>(logits[static_cast<size_t>(best)])) /
                               options.temperature));
    total += weights.back();
  }
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total))
    kept += weights[count++];
  const uint32_t bits = Philox{.key = options.seed, .stream = kSamplingStream}(position)[0];
  double threshold = static_cast<double>(uniform_from_bits(bits)) * kept;
  for (size_t i = 0; i < count; ++i) {
    threshold -= weights[i];
    if (threshold < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace muster::trainer

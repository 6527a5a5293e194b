#include "trainer_core/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/random/philox.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kSamplingStream = uint64_t{3} << 48;
// Candidates that are sorted at first; a nucleus is rarely larger.
constexpr size_t kFirstSorted = 64;

// Orders tokens by logits. Ties are ordered by id, so that the order does not depend on the sort
// algorithm.
struct Likelier {
  std::span<const float> logits;

  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

float& at(std::span<float> logits, int32_t token) { return logits[static_cast<size_t>(token)]; }

void penalize(std::span<float> logits, const SamplingOptions& options,
              const TokenHistory& history) {
  const auto in_range = [&](int32_t token) { return static_cast<size_t>(token) < logits.size(); };
  if (options.repetition_penalty != 1) {
    std::vector<int32_t> seen(history.tokens.begin(), history.tokens.end());
    std::ranges::sort(seen);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const auto penalty = static_cast<float>(options.repetition_penalty);
    for (const int32_t token : seen) {
      if (!in_range(token)) continue;
      float& logit = at(logits, token);
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  if (options.presence_penalty != 0 || options.frequency_penalty != 0) {
    std::map<int32_t, int> counts;
    for (const int32_t token : history.tokens.subspan(history.prompt)) ++counts[token];
    for (const auto& [token, count] : counts) {
      if (in_range(token))
        at(logits, token) -=
            static_cast<float>(options.presence_penalty + options.frequency_penalty * count);
    }
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (in_range(token)) at(logits, token) += static_cast<float>(bias);
  }
}

// Sorts the tokens of `order` from `begin` to `end` into the places that they have in the complete
// order. Requires that the places before `begin` are sorted.
void sort_part(std::vector<int32_t>& order, size_t begin, size_t end, const Likelier& likelier) {
  const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(end);
  std::partial_sort(first, last, order.end(), likelier);
}

}  // namespace

int32_t sample_token(std::span<float> logits, const SamplingOptions& options,
                     const TokenHistory& history) {
  penalize(logits, options, history);
  const auto best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (options.temperature <= 0) return best;
  const auto weight_of = [&](int32_t token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) -
                     static_cast<double>(logits[static_cast<size_t>(best)])) /
                    options.temperature);
  };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const Likelier likelier{logits};
  size_t count = order.size(), sorted = 0;
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < count) {
    count = sorted = static_cast<size_t>(options.top_k);
    sort_part(order, 0, count, likelier);
  }
  double kept = 0;
  for (size_t i = 0; i < count; ++i) kept += weight_of(order[i]);
  if (options.top_p < 1 || options.min_p > 0) {
    const double nucleus = options.top_p * kept;
    kept = 0;
    size_t used = 0;
    while (used < count && (used == 0 || kept < nucleus)) {
      if (used == sorted) {
        const size_t end = std::min(count, std::max(2 * sorted, kFirstSorted));
        sort_part(order, sorted, end, likelier);
        sorted = end;
      }
      const double weight = weight_of(order[used]);
      if (used > 0 && weight < options.min_p) break;
      kept += weight;
      ++used;
    }
    count = used;
  }
  const uint64_t position = history.tokens.size() - history.prompt;
  const uint32_t bits = Philox{.key = options.seed, .stream = kSamplingStream}(position)[0];
  double threshold = static_cast<double>(uniform_from_bits(bits)) * kept;
  for (size_t i = 0; i < count; ++i) {
    threshold -= weight_of(order[i]);
    if (threshold < 0) return order[i];
  }
  return best;  // rounding of the sums
}

PositionLogprobs position_logprobs(std::span<const float> logits, int32_t token, int32_t top,
                                   int32_t ids) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto of = [&](int32_t id) {
    return TokenLogprob{
        id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum)};
  };
  PositionLogprobs result{.chosen = of(token)};
  if (top <= 0) return result;
  std::vector<int32_t> order(static_cast<size_t>(ids));
  std::iota(order.begin(), order.end(), 0);
  const auto count = static_cast<size_t>(std::min(top, ids));
  sort_part(order, 0, count, Likelier{logits});
  for (size_t i = 0; i < count; ++i) result.top.push_back(of(order[i]));
  return result;
}

}  // namespace muster::trainer

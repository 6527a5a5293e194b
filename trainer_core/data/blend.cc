#include "trainer_core/data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

// Returns integers in the ratio of the weights. They are exact if the weights are decimal fractions
// with few digits.
std::vector<uint64_t> parts_of(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> parts(weights.size());
  for (double scale = 1; scale * sum <= static_cast<double>(kBlendPeriodMax); scale *= 10) {
    bool exact = true;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double scaled = weights[i] * scale;
      exact = exact && std::abs(scaled - std::round(scaled)) <= 1e-9 * scaled && scaled >= 0.5;
      parts[i] = static_cast<uint64_t>(std::round(scaled));
    }
    if (exact) return parts;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * static_cast<double>(kBlendPeriodMax);
    parts[i] = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(share)));
  }
  return parts;
}

}  // namespace

Blend::Blend(std::span<const double> weights) : parts_(parts_of(weights)) {
  MUSTER_CHECK(!parts_.empty()) << "a blend of nothing";
  uint64_t divisor = parts_.front();
  for (const uint64_t part : parts_) divisor = std::gcd(divisor, part);
  for (uint64_t& part : parts_) part /= divisor;
  const auto period = std::accumulate(parts_.begin(), parts_.end(), uint64_t{0});
  period_.resize(period);
  // Tijdeman's rule: among the sources that would not exceed their share with one more sample,
  // choose the source whose next sample is due first. The unit is 1 / (margin * period) of a
  // sample.
  const auto margin = static_cast<double>(std::max<size_t>(2 * parts_.size() - 2, 1));
  const auto total = static_cast<double>(period);
  std::vector<uint64_t> given(parts_.size());
  for (uint64_t n = 0; n < period; ++n) {
    size_t chosen = 0;
    double earliest = INFINITY;
    for (size_t k = 0; k < parts_.size(); ++k) {
      const auto part = static_cast<double>(parts_[k]);
      const double behind =
          margin * (part * static_cast<double>(n + 1) - total * static_cast<double>(given[k]));
      if (behind < total) continue;
      const double due = ((margin - 1) * total - behind) / part;
      if (due < earliest) {
        earliest = due;
        chosen = k;
      }
    }
    period_[n] = {static_cast<uint32_t>(chosen), static_cast<uint32_t>(given[chosen]++)};
  }
}

Blend::Pick Blend::operator()(uint64_t sample) const {
  const uint64_t round = sample / period_.size();
  const Entry& entry = period_[sample % period_.size()];
  return {entry.source, round * parts_[entry.source] + entry.number};
}

}  // namespace muster::trainer

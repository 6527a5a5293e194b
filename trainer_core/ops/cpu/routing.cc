#include "trainer_core/ops/cpu/routing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace muster::trainer::cpu {
namespace {

// Keeps the gates finite for a token whose choices are all improbable, as GShard does.
constexpr float kGateFloor = 1e-9F;
constexpr int32_t kDropped = -1;

void softmax(int64_t n, float* x) {
  const float peak = *std::max_element(x, x + n);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - peak);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}

// The sum that the chosen experts' probabilities are divided by.
float gate_divisor(const RoutingArrays& r, int64_t token) {
  const int64_t k = r.shape.per_token;
  float sum = kGateFloor;
  for (int64_t j = 0; j < k; ++j)
    sum += r.probs[token * r.shape.experts + r.experts[token * k + j]];
  return sum;
}

// Calls body(row) for the tokens of a group, in its order.
template <class Body>
void for_tokens(const RoutingArrays& r, int64_t group, const Body& body) {
  const int64_t n = r.shape.group_tokens();
  for (int64_t i = group * n; i < (group + 1) * n; ++i) body(r.row(i));
}

// Calls body(row, choice) in the order in which choices compete for capacity.
template <class Body>
void for_choices(const RoutingArrays& r, int64_t group, const Body& body) {
  const int64_t k = r.shape.per_token;
  if (r.shape.style == RouterStyle::kPax) {
    for (int64_t j = 0; j < k; ++j) for_tokens(r, group, [&](int64_t row) { body(row, j); });
  } else {
    for_tokens(r, group, [&](int64_t row) {
      for (int64_t j = 0; j < k; ++j) body(row, j);
    });
  }
}

// Returns the choices that count for balance: first choices, or all.
int64_t counted_choices(const RoutingShape& shape) {
  return shape.style == RouterStyle::kPax ? 1 : shape.per_token;
}

// E W_g / (T / G) of group g: what one token's probability adds to the balance loss per density.
float balance_factor(const RoutingArrays& r, int64_t group) {
  if (r.shape.balance_weight == 0) return 0;
  const int64_t n = r.shape.group_tokens();
  double weight = 0;
  for_tokens(r, group, [&](int64_t row) { weight += r.weights[row]; });
  return static_cast<float>(r.shape.balance_weight * weight * static_cast<double>(r.shape.experts) /
                            static_cast<double>(n));
}

}  // namespace

void choose_experts(int64_t begin, int64_t end, const RoutingArrays& r) {
  const int64_t count = r.shape.experts, k = r.shape.per_token;
  for (int64_t token = begin; token < end; ++token) {
    float* probs = r.probs + token * count;
    int32_t* chosen = r.experts + token * k;
    softmax(count, probs);
    for (int64_t j = 0; j < k; ++j) {
      int32_t best = -1;
      for (int32_t e = 0; e < count; ++e) {
        const bool taken = std::find(chosen, chosen + j, e) != chosen + j;
        if (!taken && (best < 0 || probs[e] > probs[best])) best = e;
      }
      chosen[j] = best;
    }
    const float divisor = gate_divisor(r, token);
    for (int64_t j = 0; j < k; ++j) r.gates[token * k + j] = probs[chosen[j]] / divisor;
  }
}

void assign_slots(const RoutingArrays& r) {
  const RoutingShape& shape = r.shape;
  const int64_t k = shape.per_token;
  const int64_t capacity = shape.capacity > 0 ? shape.capacity : shape.group_tokens();
  // First how many rows each expert gets, then which.
  std::vector<int64_t> taken(static_cast<size_t>(shape.experts));
  std::fill_n(r.offsets, shape.experts + 1, 0);
  for (int64_t group = 0; group < shape.groups; ++group) {
    std::fill(taken.begin(), taken.end(), 0);
    for_choices(r, group, [&](int64_t row, int64_t j) {
      const int32_t expert = r.experts[row * k + j];
      const bool fits = taken[static_cast<size_t>(expert)]++ < capacity;
      r.slots[row * k + j] = fits && r.is_own(row) ? r.offsets[expert + 1]++ : kDropped;
    });
  }
  for (int64_t e = 0; e < shape.experts; ++e) r.offsets[e + 1] += r.offsets[e];
  for (int64_t i = 0; i < shape.rows(); ++i)
    if (r.slots[i] != kDropped) r.slots[i] += r.offsets[r.experts[i]];
}

void balance_groups(int64_t begin, int64_t end, const RoutingArrays& r) {
  const RoutingShape& shape = r.shape;
  const int64_t n = shape.group_tokens(), count = shape.experts, k = shape.per_token;
  for (int64_t group = begin; group < end; ++group) {
    float* density = r.density + group * count;
    for (int64_t e = 0; e < count; ++e) {
      int64_t chosen = 0;
      for_tokens(r, group, [&](int64_t row) {
        for (int64_t j = 0; j < counted_choices(shape); ++j)
          chosen += r.experts[row * k + j] == e ? 1 : 0;
      });
      density[e] = static_cast<float>(static_cast<double>(chosen) / static_cast<double>(n));
    }
    double sum = 0;
    for_tokens(r, group, [&](int64_t row) {
      for (int64_t e = 0; e < count; ++e)
        sum += static_cast<double>(density[e]) * r.probs[row * count + e];
    });
    r.balance[group] = static_cast<float>(balance_factor(r, group) * sum);
  }
}

void route_backward_tokens(int64_t begin, int64_t end, const RoutingArrays& r,
                           const float* dgates) {
  const int64_t count = r.shape.experts, k = r.shape.per_token, n = r.shape.group_tokens();
  std::vector<float> dprobs(static_cast<size_t>(count));
  int64_t group = -1;
  float factor = 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t token = r.row(i);
    if (!r.is_own(token)) continue;
    if (i / n != group) factor = balance_factor(r, group = i / n);
    float* probs = r.probs + token * count;
    const float* gates = r.gates + token * k;
    const float* dgate = dgates + (token - r.shape.first_own) * k;
    const int32_t* chosen = r.experts + token * k;
    for (int64_t e = 0; e < count; ++e)
      dprobs[static_cast<size_t>(e)] = factor * r.density[group * count + e];
    // gate_j = p_j / divisor
    float mean = 0;
    for (int64_t j = 0; j < k; ++j) mean += dgate[j] * gates[j];
    const float divisor = gate_divisor(r, token);
    for (int64_t j = 0; j < k; ++j)
      dprobs[static_cast<size_t>(chosen[j])] += (dgate[j] - mean) / divisor;
    float dot = 0;
    for (int64_t e = 0; e < count; ++e) dot += dprobs[static_cast<size_t>(e)] * probs[e];
    for (int64_t e = 0; e < count; ++e) probs[e] *= dprobs[static_cast<size_t>(e)] - dot;
  }
}

}  // namespace muster::trainer::cpu

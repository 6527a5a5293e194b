// The operations of mixtures of experts: routing against a direct simulation, gradients against
// finite differences in fp64, GEMMs against sums.
#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

struct RoutingValues {
  explicit RoutingValues(const RoutingShape& s)
      : shape(s),
        weights({s.tokens}),
        probs(Values::random({s.tokens, s.experts}, 1, 2)),
        gates({s.tokens, s.per_token}),
        density({s.groups, s.experts}),
        balance({s.groups}),
        experts(static_cast<size_t>(s.rows()), -7),
        slots(static_cast<size_t>(s.rows()), -7),
        offsets(static_cast<size_t>(s.experts) + 1, -7) {
    for (int64_t i = 0; i < s.tokens; ++i) weights[i] = i % 5 == 0 ? 0.0F : 1.0F;
  }
  Tensor slot_tensor() { return Tensor::i32(slots.data(), {shape.tokens, shape.per_token}); }
  Tensor offset_tensor() { return Tensor::i32(offsets.data(), {shape.experts + 1}); }
  Routing view() {
    return {probs,           Tensor::i32(experts.data(), {shape.tokens, shape.per_token}),
            gates,           slot_tensor(),
            offset_tensor(), density,
            balance};
  }

  RoutingShape shape;
  Values weights, probs, gates, density, balance;
  std::vector<int32_t> experts, slots, offsets;
};

// The required decisions of a router, in fp64 and as the papers define them. `given`: the choices,
// if they are not recomputed.
struct RoutingReference {
  RoutingReference(const RoutingShape& s, const std::vector<double>& logits, const Values& weights,
                   const RoutingReference* given = nullptr) {
    const int64_t n = s.group_tokens();
    std::vector<std::vector<double>> p;
    for (int64_t t = 0; t < s.tokens; ++t) {
      const auto first = logits.begin() + t * s.experts;
      std::vector<double> e(first, first + s.experts);
      for (double& x : e) x = std::exp(x);
      const double sum = std::accumulate(e.begin(), e.end(), 0.0);
      for (double& x : e) x /= sum;
      p.push_back(e);
      std::vector<int64_t> order(e.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return e[static_cast<size_t>(a)] > e[static_cast<size_t>(b)];
      });
      order.resize(static_cast<size_t>(s.per_token));
      if (given != nullptr) order = given->experts[static_cast<size_t>(t)];
      double divisor = 1e-9;
      for (const int64_t expert : order) divisor += e[static_cast<size_t>(expert)];
      for (const int64_t expert : order) gates.push_back(e[static_cast<size_t>(expert)] / divisor);
      experts.push_back(order);
    }
    const int64_t counted = s.style == RouterStyle::kPax ? 1 : s.per_token;
    for (int64_t g = 0; g < s.groups; ++g) {
      double sum = 0, weight = 0;
      for (int64_t t = g * n; t < (g + 1) * n; ++t) weight += weights[t];
      for (int64_t e = 0; e < s.experts; ++e) {
        double chosen = 0, mean = 0;
        for (int64_t t = g * n; t < (g + 1) * n; ++t) {
          for (int64_t j = 0; j < counted; ++j)
            chosen += experts[static_cast<size_t>(t)][static_cast<size_t>(j)] == e ? 1 : 0;
          mean += p[static_cast<size_t>(t)][static_cast<size_t>(e)];
        }
        sum += chosen / static_cast<double>(n) * mean / static_cast<double>(n);
      }
      balance.push_back(s.balance_weight * weight * static_cast<double>(s.experts) * sum);
    }
  }
  std::vector<std::vector<int64_t>> experts;  // by token
  std::vector<double> gates, balance;
};

std::vector<RoutingShape> shapes() {
  const auto pax = RouterStyle::kPax;
  return {
      {.tokens = 1, .experts = 1, .per_token = 1},
      {.tokens = 12, .groups = 3, .experts = 4, .per_token = 2, .balance_weight = 0.7},
      {.tokens = 30,
       .experts = 5,
       .per_token = 2,
       .capacity = 4,
       .style = pax,
       .balance_weight = 1},
      {.tokens = 60, .groups = 2, .experts = 3, .per_token = 3, .capacity = 7, .style = pax},
      {.tokens = 60, .groups = 4, .experts = 6, .per_token = 2, .capacity = 3, .balance_weight = 3},
      {.tokens = 4096, .groups = 8, .experts = 16, .per_token = 2, .capacity = 60, .style = pax}};
}

TEST(Routing, ChoosesAndBalances) {
  for (const RoutingShape& shape : shapes()) {
    RoutingValues values(shape);
    const RoutingReference expected(shape, as_double(values.probs), values.weights);
    cpu_ops(2)->route(shape, values.weights, values.view());
    for (size_t i = 0; i < values.experts.size(); ++i) {
      const auto k = static_cast<size_t>(shape.per_token);
      ASSERT_EQ(values.experts[i], expected.experts[i / k][i % k]) << i;
    }
    expect_near(values.gates, expected.gates, 1e-6);
    expect_near(values.balance, expected.balance, 1e-6);
  }
}

// Each expert's rows are a run of their own; it takes the earliest choices of each group up to its
// capacity.
TEST(Routing, GivesRowsUpToCapacity) {
  for (const RoutingShape& shape : shapes()) {
    RoutingValues values(shape);
    cpu_ops(2)->route(shape, values.weights, values.view());
    const int64_t n = shape.group_tokens(), k = shape.per_token;
    std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int32_t>>> queues;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t position = shape.style == RouterStyle::kPax ? j * n + t % n : t * k + j;
        const auto i = static_cast<size_t>(t * k + j);
        queues[{t / n, values.experts[i]}].emplace_back(position, values.slots[i]);
      }
    }
    std::set<int32_t> taken;
    int64_t dropped = 0;
    for (auto& [where, queue] : queues) {
      std::ranges::sort(queue);
      const auto e = static_cast<size_t>(where.second);
      for (size_t i = 0; i < queue.size(); ++i) {
        const int32_t slot = queue[i].second;
        if (shape.capacity > 0 && static_cast<int64_t>(i) >= shape.capacity) {
          ASSERT_EQ(slot, -1);
          ++dropped;
          continue;
        }
        ASSERT_TRUE(slot >= values.offsets[e] && slot < values.offsets[e + 1]) << slot;
        ASSERT_TRUE(taken.insert(slot).second) << "row " << slot << " was given twice";
      }
    }
    EXPECT_EQ(values.offsets.front(), 0);
    EXPECT_EQ(values.offsets.back(), shape.rows() - dropped);
    EXPECT_EQ(static_cast<int64_t>(taken.size()), shape.rows() - dropped);
    if (shape.capacity == 0) {
      EXPECT_EQ(dropped, 0);
    }
  }
}

TEST(Routing, EqualExpertsAreTakenInOrder) {
  const RoutingShape shape{.tokens = 2, .experts = 4, .per_token = 2};
  RoutingValues values(shape);
  Values flat({2, 4}, 0.25F);
  values.probs = flat;
  cpu_ops(1)->route(shape, values.weights, values.view());
  EXPECT_EQ(values.experts, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_FLOAT_EQ(values.gates[0], 0.5F);
}

TEST(Routing, Backward) {
  for (const RoutingShape& shape : shapes()) {
    if (shape.tokens > 100) continue;
    RoutingValues values(shape);
    const std::vector<double> logits = as_double(values.probs);
    Values dgates = Values::random({shape.tokens, shape.per_token}, 9);
    const RoutingReference chosen(shape, logits, values.weights);
    const auto ops = cpu_ops(2);
    ops->route(shape, values.weights, values.view());
    ops->route_backward(shape, values.weights, dgates, values.view());
    expect_near(values.probs,
                derivative(logits,
                           [&](const std::vector<double>& x) {
                             const RoutingReference moved(shape, x, values.weights, &chosen);
                             double sum =
                                 std::accumulate(moved.balance.begin(), moved.balance.end(), 0.0);
                             for (size_t i = 0; i < moved.gates.size(); ++i)
                               sum += moved.gates[i] * dgates[static_cast<int64_t>(i)];
                             return sum;
                           }),
                2e-5);
  }
}

// Tokens to rows and back, with drops.
TEST(ExpertRows, DispatchAndCombine) {
  constexpr int64_t kTokens = 700, kWidth = 21, kChoices = 2, kRows = kTokens * kChoices;
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < kRows; ++i)
    slots.push_back(i % 7 == 3 ? -1 : static_cast<int32_t>(i * 201 % kRows));
  const Tensor slot = Tensor::i32(slots.data(), {kTokens, kChoices});
  Values x = Values::random({kTokens, kWidth}, 1), gates = Values::random({kTokens, kChoices}, 2);
  Values rows({kRows, kWidth}, 5), out({kTokens, kWidth}, 7);
  Values processed = Values::random({kRows, kWidth}, 4);
  Values dx = Values::random({kTokens, kWidth}, 6), before = dx;
  const auto ops = cpu_ops(2);
  ops->dispatch(slot, x, rows);
  ops->combine(slot, gates, processed, out);
  ops->dispatch_backward(slot, processed, dx);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t j = 0; j < kWidth; ++j) {
      double sum = 0, back = before[t * kWidth + j];
      for (int64_t i = t * kChoices; i < (t + 1) * kChoices; ++i) {
        const int64_t row = slots[static_cast<size_t>(i)];
        if (row < 0) continue;
        ASSERT_EQ(rows[row * kWidth + j], x[t * kWidth + j]);
        sum += double{gates[i]} * processed[row * kWidth + j];
        back += processed[row * kWidth + j];
      }
      ASSERT_NEAR(out[t * kWidth + j], sum, 1e-5);
      ASSERT_NEAR(dx[t * kWidth + j], back, 1e-5);
    }
  }
}

TEST(ExpertRows, CombineBackward) {
  constexpr int64_t kTokens = 600, kWidth = 37, kChoices = 2, kRows = kTokens * kChoices;
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < kRows; ++i)
    slots.push_back(i % 5 == 1 ? -1 : static_cast<int32_t>(i * 77 % kRows));
  Values gates = Values::random({kTokens, kChoices}, 2), dgates({kTokens, kChoices}, 7);
  Values act = Values::random({kRows, kWidth}, 3), dact = Values::random({kRows, kWidth}, 4);
  const Values old_act = act, old_dact = dact;
  cpu_ops(2)->combine_backward(Tensor::i32(slots.data(), {kTokens, kChoices}), gates, act, dact,
                               dgates);
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t row = slots[static_cast<size_t>(i)];
    double sum = 0;
    for (int64_t j = 0; j < kWidth && row >= 0; ++j) {
      const int64_t at = row * kWidth + j;
      sum += double{old_act[at]} * old_dact[at];
      ASSERT_NEAR(act[at], gates[i] * old_act[at], 1e-6);
      ASSERT_NEAR(dact[at], gates[i] * old_dact[at], 1e-6);
    }
    ASSERT_NEAR(dgates[i], sum, 1e-5);
  }
}

TEST(ExpertMatmul, EachExpertsRows) {
  constexpr int64_t kExperts = 4, kIn = 19, kOut = 33, kRows = 60;
  // one expert has no rows; rows 52… belong to no expert
  std::vector<int32_t> offsets = {0, 7, 7, 40, 52};
  const Tensor offset = Tensor::i32(offsets.data(), {kExperts + 1});
  Values x = Values::random({kRows, kIn}, 1), w = Values::random({kExperts, kOut, kIn}, 2);
  Values dy = Values::random({kRows, kOut}, 3);
  Values y({kRows, kOut}, 7), dx({kRows, kIn}, 7), dw({kExperts, kOut, kIn}, 7);
  const auto ops = cpu_ops(2);
  ops->expert_matmul(offset, x, w, y);
  ops->expert_matmul_dx(offset, dy, w, dx);
  ops->expert_matmul_dw(offset, dy, x, dw, Accumulate::kNo);
  std::vector<double> want_y(kRows * kOut, 7), want_dx(kRows * kIn, 7),
      want_dw(kExperts * kOut * kIn);
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t r = offsets[static_cast<size_t>(e)]; r < offsets[static_cast<size_t>(e) + 1];
         ++r) {
      for (int64_t o = 0; o < kOut; ++o) want_y[static_cast<size_t>(r * kOut + o)] = 0;
      for (int64_t i = 0; i < kIn; ++i) want_dx[static_cast<size_t>(r * kIn + i)] = 0;
      for (int64_t o = 0; o < kOut; ++o) {
        for (int64_t i = 0; i < kIn; ++i) {
          const auto weight = static_cast<size_t>((e * kOut + o) * kIn + i);
          want_y[static_cast<size_t>(r * kOut + o)] += double{x[r * kIn + i]} * w.data()[weight];
          want_dx[static_cast<size_t>(r * kIn + i)] += double{dy[r * kOut + o]} * w.data()[weight];
          want_dw[weight] += double{dy[r * kOut + o]} * x[r * kIn + i];
        }
      }
    }
  }
  expect_near(y, want_y, 1e-6);
  expect_near(dx, want_dx, 1e-6);
  expect_near(dw, want_dw, 1e-6);
  ops->expert_matmul_dw(offset, dy, x, dw, Accumulate::kYes);
  for (double& value : want_dw) value *= 2;
  expect_near(dw, want_dw, 1e-6);
}

}  // namespace
}  // namespace muster::trainer

// Routers, moving rows to experts and back, and quantization.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

struct RoutingCase {
  RoutingShape shape;
  bool ordered = false;
};
std::vector<RoutingCase> routing_cases() {
  std::vector<RoutingCase> cases = {
      {{.tokens = 1, .groups = 1, .experts = 1, .per_token = 1}},
      {{.tokens = 24, .groups = 2, .experts = 5, .per_token = 2, .balance_weight = 0.01}},
      {{.tokens = 300,
        .groups = 3,
        .experts = 8,
        .per_token = 2,
        .capacity = 30,
        .style = RouterStyle::kPax,
        .balance_weight = 0.1}},
      {{.tokens = 600,
        .groups = 2,
        .experts = 70,
        .per_token = 6,
        .capacity = 20,
        .balance_weight = 0.1}},
      {{.tokens = 96,
        .groups = 4,
        .experts = 6,
        .per_token = 3,
        .capacity = 9,
        .style = RouterStyle::kPax,
        .balance_weight = 1,
        .first_own = 32,
        .own = 48},
       true}};
  if (large_shapes())
    cases.push_back(
        {{.tokens = 16'384, .groups = 4, .experts = 64, .per_token = 8, .balance_weight = 0.01}});
  return cases;
}
class Routers : public testing::TestWithParam<RoutingCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Routers, testing::ValuesIn(routing_cases()));

TEST_P(Routers, ForwardAndBackward) {
  const RoutingShape& s = GetParam().shape;
  Both probs = Both::random(DType::kF32, {s.tokens, s.experts}, 1, 3);
  Both experts(DType::kI32, {s.tokens, s.per_token}), gates(DType::kF32, {s.tokens, s.per_token});
  Both slots(DType::kI32, {s.tokens, s.per_token}), offsets(DType::kI32, {s.experts + 1});
  Both density(DType::kF32, {s.groups, s.experts}), balance(DType::kF32, {s.groups});
  Both weights = Both::random(DType::kF32, {s.tokens}, 2), order(DType::kI32, {s.tokens});
  Both dgates = Both::random(DType::kF32, {s.own_tokens(), s.per_token}, 3);
  std::vector<int32_t> backwards;
  for (int64_t i = s.tokens; i-- > 0;) backwards.push_back(static_cast<int32_t>(i));
  order.set_ids(backwards);
  // Includes equal logits: the expert with the lower number is chosen.
  std::vector<float> logits;
  for (const double value : probs.values(Side::kCpu))
    logits.push_back(static_cast<float>(std::round(4 * value) / 4));
  probs.set(logits);
  const auto routing = [&](Side side) {
    return Routing{probs.on(side),   experts.on(side),
                   gates.on(side),   slots.on(side),
                   offsets.on(side), density.on(side),
                   balance.on(side), GetParam().ordered ? order.on(side) : Tensor()};
  };
  on_both([&](Ops& ops, Side side) { ops.route(s, weights.on(side), routing(side)); });
  expect_same(probs, 1e-6, "probs");
  expect_equal(experts, "experts");
  expect_equal(slots, "slots");
  expect_equal(offsets, "offsets");
  expect_same(gates, 1e-6, "gates");
  expect_same(density, 1e-7, "density");
  expect_same(balance, 1e-5, "balance");
  on_both([&](Ops& ops, Side side) {
    ops.route_backward(s, weights.on(side), dgates.on(side), routing(side));
  });
  expect_same(probs, 1e-5, "gradient of the logits");
}

class ExpertRows : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ExpertRows, testing::Values(DType::kF32, DType::kBf16));

TEST_P(ExpertRows, ThereAndBack) {
  constexpr int64_t kTokens = 9, kChoices = 2, kWidth = 300;
  Both slots(DType::kI32, {kTokens, kChoices});
  std::vector<int32_t> slot_ids;
  for (int32_t i = 0; i < kTokens * kChoices; ++i)
    slot_ids.push_back(i % 5 == 3 ? -1 : (7 * i + 3) % 18);
  slots.set_ids(slot_ids);
  Both x = Both::random(GetParam(), {kTokens, kWidth}, 1, 1, true);
  Both rows = Both::filled(GetParam(), {kTokens * kChoices, kWidth}, 7);
  Both dx = Both::random(GetParam(), {kTokens, kWidth}, 2), out(GetParam(), {kTokens, kWidth});
  Both gates = Both::random(DType::kF32, {kTokens, kChoices}, 3);
  Both act = Both::random(GetParam(), {kTokens * kChoices, kWidth}, 4);
  Both dact = Both::random(GetParam(), {kTokens * kChoices, kWidth}, 5);
  Both dgates(DType::kF32, {kTokens, kChoices});
  on_both([&](Ops& ops, Side side) {
    ops.dispatch(slots.on(side), x.on(side), rows.on(side));
    ops.combine(slots.on(side), gates.on(side), act.on(side), out.on(side));
    ops.dispatch_backward(slots.on(side), act.on(side), dx.on(side));
    ops.combine_backward(slots.on(side), gates.on(side), act.on(side), dact.on(side),
                         dgates.on(side));
  });
  expect_equal(rows, "rows");
  expect_same(out, bound_of(GetParam()), "out");
  expect_same(dx, bound_of(GetParam()), "dx");
  expect_same(act, bound_of(GetParam()), "act");
  expect_same(dact, bound_of(GetParam()), "dact");
  expect_same(dgates, 1e-5, "dgates");
}

class Quantization : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Shapes, Quantization, testing::ValuesIn(row_cases(/*with_empty=*/false)),
                         testing::PrintToStringParamName());

TEST_P(Quantization, ToEveryGrid) {
  for (const NumberGrid grid : {NumberGrid::kE4m3, NumberGrid::kE5m2, NumberGrid::kInt8}) {
    for (const ScaleOf of : {ScaleOf::kTensor, ScaleOf::kRow, ScaleOf::kColumn}) {
      const int64_t scales = of == ScaleOf::kTensor ? 1 : of == ScaleOf::kRow ? rows() : width();
      Both x = activations(1, 3), amax = Both::filled(DType::kF32, {scales}, 0.5F);
      Both scale(DType::kF32, {scales}), out = activations(2),
                                         noisy(DType::kF32, {rows(), width()});
      Both product(DType::kF32, {rows(), width()});
      Both row_scale = Both::random(DType::kF32, {rows()}, 3), column_scale = parameters(4);
      RoundingNoise noise{.key = 77, .location = 5};
      noise.elements.columns = width() + 3;
      noise.elements.first_column = 1;
      on_both([&](Ops& ops, Side side) {
        ops.abs_max(x.on(side), of, amax.on(side),
                    of == ScaleOf::kTensor ? Accumulate::kYes : Accumulate::kNo);
        ops.current_scale(grid, amax.on(side), scale.on(side));
        ops.quantize(grid, x.on(side), of, scale.on(side), std::nullopt, out.on(side));
        ops.quantize(grid, x.on(side), of, scale.on(side), noise, noisy.on(side));
        ops.dequantize(noisy.on(side), row_scale.on(side), column_scale.on(side), product.on(side),
                       Accumulate::kYes);
      });
      expect_equal(amax, "amax");
      expect_equal(scale, "scale");
      expect_equal(out, "rounded");
      expect_equal(noisy, "rounded with noise");
      expect_equal(product, "dequantized");
    }
  }
}

TEST(WeightBlocks, AreDecodedToTheSameBits) {
  const int64_t elements = large_shapes() ? int64_t{1} << 26 : 37 * kWeightBlock;
  for (const WeightType type : {WeightType::kNf4, WeightType::kInt8}) {
    const int64_t bytes = code_bytes(type, elements);
    std::vector<float> values;
    for (int64_t i = 0; i < bytes; ++i) values.push_back(static_cast<float>(i * 7 % 255 - 127));
    Both codes(DType::kI8, {bytes}),
        scales = Both::random(DType::kF32, {elements / kWeightBlock}, 1);
    codes.set(values);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      Both out(dtype, {elements});
      on_both([&](Ops& ops, Side side) {
        ops.decode_weights({type, codes.on(side), scales.on(side)}, out.on(side));
      });
      expect_equal(out, "weights");
    }
  }
}

TEST(DelayedScale, OfAStep) {
  constexpr int64_t kProducts = 4, kLength = 7;
  Both amax = Both::random(DType::kF32, {kProducts, 3}, 1, 100);
  Both history = Both::random(DType::kF32, {kProducts, 3, kLength}, 2, 50);
  std::vector<float> magnitudes;
  for (const double value : history.values(Side::kCpu))
    magnitudes.push_back(static_cast<float>(std::abs(value)));
  magnitudes[3] = INFINITY;  // a step that was not finite
  history.set(magnitudes);
  magnitudes.assign(kProducts * 3, 0.0F);
  magnitudes[5] = 12;
  amax.set(magnitudes);
  Both scale = Both::filled(DType::kF32, {kProducts, 3}, 0.25F);
  on_both([&](Ops& ops, Side side) {
    ops.delayed_scale(amax.on(side), history.on(side), scale.on(side));
  });
  expect_equal(history, "history");
  expect_equal(scale, "scale");
}

}  // namespace
}  // namespace muster::trainer

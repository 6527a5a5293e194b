// Every kernel of the CPU backend gives the same results, up to rounding, on every instruction set
// of this machine. tests/unit/trainer_core/ops/cpu/gemm_test.cc does the same for GEMMs.
#include <hwy/targets.h>

#include "tests/unit/trainer_core/ops/op_cases.h"
#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

// A bf16 result may be rounded the other way: the spacing of bf16 numbers is 1/128 of their size.
constexpr double kBf16 = 1.0 / 128;

// A result of an operation.
struct Result {
  std::string name;
  Values values;
  // Bound on the difference between instruction sets, relative to the largest magnitude. 0: the
  // bits are the same.
  double tolerance = 0;
};
using Results = std::vector<Result>;

// Runs `computation` with the default instruction set, then with each one that the machine has, and
// compares the results.
void compare_targets(const std::function<Results(Ops&)>& computation) {
  const auto ops = cpu_ops(1);
  const Results best = computation(*ops);
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const Results other = computation(*ops);
    ASSERT_EQ(other.size(), best.size());
    for (size_t i = 0; i < best.size(); ++i) {
      SCOPED_TRACE(testing::Message() << best[i].name << " on " << hwy::TargetName(target));
      if (best[i].tolerance == 0) {
        EXPECT_EQ(other[i].values, best[i].values);
      } else {
        expect_near(other[i].values, as_double(best[i].values), best[i].tolerance);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

constexpr AttentionShape kAttention{.batch = 1,
                                    .seq_len = 70,
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .head_dim = 10,
                                    .soft_cap = 2,
                                    .window = 40,
                                    .extra_zero = true,
                                    .buckets = {8, 20}};

TEST(Targets, Attention) {
  compare_targets([](Ops& ops) -> Results {
    Values table = Values::random({2, 8}, 9), qkv = Values::random({70, 40}, 1),
           d_out = Values::random({70, 20}, 2);
    Values out({70, 20}), lse({1, 2, 70}), d_qkv({70, 40}), d_table({2, 8});
    Scratch scratch(cpu_attention_backward_elements(kAttention, 1));
    ops.attention(kAttention, qkv, table, out, lse, scratch);
    ops.attention_backward(kAttention, qkv, table, out, lse, d_out, d_qkv, d_table, Accumulate::kNo,
                           scratch);
    return {
        {"out", out, 3e-6}, {"lse", lse, 3e-6}, {"d_qkv", d_qkv, 1e-5}, {"d_table", d_table, 1e-5}};
  });
}

// The queries of a rank's two runs of positions, and the keys of the other rank: only the first of
// these runs is visible.
TEST(Targets, AttentionBlocks) {
  compare_targets([](Ops& ops) -> Results {
    AttentionShape shape = kAttention;
    shape.seq_len = 80, shape.positions = Positions({40, 40}, {80, 40}), shape.window = 0;
    const Positions keys({0, 40}, {120, 40});
    Values table = Values::random({2, 8}, 9), qkv = Values::random({80, 40}, 1),
           block = Values::random({80, 20}, 10), d_out = Values::random({80, 20}, 2);
    Values sums({80, 20}), lse({1, 2, 80}), dq({80, 20}), dkv({80, 20}), d_table({2, 8});
    Scratch scratch(cpu_attention_backward_elements(shape, keys, 1));
    ops.attention_block(shape, qkv, {block, keys}, table, {sums, lse}, Accumulate::kNo, scratch);
    ops.attention_block_backward(shape, qkv, {block, keys}, table, sums, lse, d_out,
                                 {dq, dkv, d_table}, scratch);
    return {{"sums", sums, 3e-6},
            {"lse", lse, 3e-6},
            {"dq", dq, 1e-5},
            {"dkv", dkv, 1e-5},
            {"d_table", d_table, 1e-5}};
  });
}

TEST(Targets, PagedAttention) {
  compare_targets([](Ops& ops) -> Results {
    constexpr int64_t kBlocks = 7, kBlock = 11, kRows = 9;
    AttentionShape shape = kAttention;
    shape.seq_len = kRows;
    Values table = Values::random({2, 8}, 9), qkv = Values::random({kRows, 40}, 1),
           out({kRows, 20});
    Values keys = Values::random({kBlocks, 1, kBlock, 10}, 11),
           values = Values::random({kBlocks, 1, kBlock, 10}, 12);
    Scratch scratch(cpu_attention_paged_elements(shape, kBlocks * kBlock, 1));
    TestRows rows(1, kRows, 61, kBlocks);
    ops.attention_paged(shape, rows, qkv, table, {keys, values}, out, scratch);
    return {{"out", out, 3e-6}, {"keys", keys}, {"values", values}};
  });
}

TEST(Targets, Rope) {
  compare_targets([](Ops& ops) -> Results {
    Results results;
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved}) {
      for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kBackward}) {
        Values cos = Values::random({70, 5}, 1), sin = Values::random({70, 5}, 2);
        Values qkv = Values::random({70, 40}, 3);
        HalfValues half(qkv);
        ops.rope(kAttention, cos, sin, pairs, direction, qkv);
        ops.rope(kAttention, cos, sin, pairs, direction, half);
        results.push_back({"rope", qkv, 1e-6});
        results.push_back({"rope in bf16", half.widened(), kBf16});
      }
    }
    return results;
  });
}

TEST(Targets, Norms) {
  compare_targets([](Ops& ops) -> Results {
    Results results;
    for (const NormShape& shape : {NormShape{NormType::kRms, 1e-5, 1}, {NormType::kLayer, 1e-5}}) {
      Values x = Values::random({9, 37}, 4), dy = Values::random({9, 37}, 6);
      Values gain = Values::random({37}, 5), bias = Values::random({37}, 7);
      const NormWeights weights{gain, shape.type == NormType::kLayer ? Tensor(bias) : Tensor()};
      Values y({9, 37}), stats({shape.stats(9)}), dx({9, 37}), d_gain({37}), d_bias({37});
      const NormWeights d_weights{d_gain,
                                  shape.type == NormType::kLayer ? Tensor(d_bias) : Tensor()};
      Scratch scratch(cpu_norm_backward_elements(37));
      ops.norm(shape, x, weights, y, stats);
      ops.norm_backward(shape, dy, x, weights, stats, dx, d_weights, Accumulate::kNo, scratch);
      Values sum({9, 37}), sum_y({9, 37}), sum_stats({shape.stats(9)});
      ops.add_norm(shape, x, dy, weights, sum, sum_y, sum_stats);
      HalfValues half(x), half_y(y);
      ops.norm(shape, half, weights, half_y, stats);
      results.insert(results.end(), {{"y", y, 1e-6},
                                     {"stats", stats, 1e-6},
                                     {"dx", dx, 1e-5},
                                     {"d_gain", d_gain, 1e-5},
                                     {"d_bias", d_bias, 1e-5},
                                     {"y of a sum", sum_y, 1e-6},
                                     {"y in bf16", half_y.widened(), kBf16}});
    }
    return results;
  });
}

// All operations of the table of cases: activations, biases, sums of tensors, the soft cap.
TEST(Targets, OperationsOnRows) {
  for (const OpCase& op : op_cases()) {
    SCOPED_TRACE(op.name);
    compare_targets([&](Ops& ops) {
      Results results;
      for (const bool half : {false, true}) {
        if (half && !op.has_bf16) continue;
        std::vector<Values> wide;
        for (const OpOperand& operand : op.operands) {
          const bool per_row = operand.kind == OpOperand::Kind::kActivations;
          wide.push_back(Values::random({per_row ? 9 : 1, operand.widths * 37}, wide.size() + 1,
                                        operand.scale));
        }
        std::vector<HalfValues> narrow(wide.begin(), wide.end());
        std::vector<Tensor> tensors;
        for (size_t i = 0; i < wide.size(); ++i) {
          const bool narrows = half && op.operands[i].kind == OpOperand::Kind::kActivations;
          tensors.push_back(narrows ? Tensor(narrow[i]) : Tensor(wide[i]));
        }
        op.run(ops, tensors);
        for (size_t i = 0; i < wide.size(); ++i) {
          const std::string operand = "operand " + std::to_string(i);
          results.push_back({operand, wide[i], 2e-6});
          results.push_back({operand + " in bf16", narrow[i].widened(), kBf16});
        }
      }
      return results;
    });
  }
}

TEST(Targets, Reductions) {
  compare_targets([](Ops& ops) -> Results {
    Values x = Values::random({9, 37}, 4), d_bias({37}), kept({2, 500}, 1), sums({2});
    Scratch scratch(cpu_bias_backward_elements(37));
    ops.bias_backward(x, d_bias, Accumulate::kNo, scratch);
    ops.dropout({.rate = 0.3, .key = 3}, kept);
    sums[0] = static_cast<float>(ops.sum(x));
    sums[1] = static_cast<float>(ops.sum_of_squares(x));
    HalfValues half(x);
    Values copied({9, 37});
    ops.copy(half, copied);
    return {{"d_bias", d_bias, 1e-6}, {"dropout", kept}, {"sums", sums, 1e-6}, {"copied", copied}};
  });
}

TEST(Targets, Quantization) {
  compare_targets([](Ops& ops) -> Results {
    Values x = Values::random({9, 37}, 4), row_max({9}), column_max({37});
    Values int8({9, 37}), e4m3({9, 37}), e5m2({9, 37});
    ops.abs_max(x, ScaleOf::kRow, row_max, Accumulate::kNo);
    ops.abs_max(x, ScaleOf::kColumn, column_max, Accumulate::kNo);
    ops.quantize(NumberGrid::kInt8, x, ScaleOf::kRow, row_max, RoundingNoise{.key = 3}, int8);
    ops.quantize(NumberGrid::kE4m3, x, ScaleOf::kColumn, column_max, {}, e4m3);
    ops.quantize(NumberGrid::kE5m2, x, ScaleOf::kColumn, column_max, {}, e5m2);
    Values scaled({9, 37});
    ops.dequantize(x, row_max, column_max, scaled, Accumulate::kNo);
    return {{"dequantized", scaled, 1e-6},
            {"row maxima", row_max},
            {"column maxima", column_max},
            {"int8", int8},
            {"e4m3", e4m3},
            {"e5m2", e5m2}};
  });
}

// The loss and its gradient for the complete vocabulary and for a slice of it.
TEST(Targets, Losses) {
  compare_targets([](Ops& ops) -> Results {
    const LossShape shape{10, 1e-3};
    Ids targets(9, 101, 6);
    Values weights({9}, 1), losses({9}), sums({9, 3}), sliced_losses({9}), sliced({9, 101});
    Values logits = Values::random({9, 101}, 8, 5), capped = logits;
    ops.logit_sums(shape, {}, capped, targets, sums);
    ops.sliced_cross_entropy_backward(shape, {}, capped, targets, sums, weights, sliced_losses,
                                      sliced);
    ops.cross_entropy_backward(shape, logits, targets, weights, losses, logits);
    return {{"losses", losses, 1e-6},
            {"gradient", logits, 1e-6},
            {"logit sums", sums, 1e-6},
            {"losses of slices", sliced_losses, 1e-6},
            {"gradient of a slice", sliced, 1e-6}};
  });
}

TEST(Targets, Adam) {
  compare_targets([](Ops& ops) -> Results {
    AdamStep step{.learning_rate = 1e-2,
                  .b1 = 0.9,
                  .b2 = 0.99,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .grad_scale = 0.5,
                  .bias_correction1 = 0.1,
                  .bias_correction2 = 0.01};
    Values grads = Values::random({333}, 1), params = Values::random({333}, 2),
           m = Values::random({333}, 3, 0.1F), v({333}, 0.01F);
    HalfValues half_params(params), half_m(m);
    Values half_v = v, direction = grads, direction_m = m, direction_v = v;
    ops.adam(step, grads, params, m, v);
    ops.adam_direction(step, direction, direction_m, direction_v);
    step.noise = AdamStep::Noise{.key = 3, .update = 7, .first = 64};
    ops.adam(step, grads, half_params, half_m, half_v);
    return {{"params", params, 1e-6},
            {"m", m, 1e-6},
            {"v", v, 1e-6},
            {"params in bf16", half_params.widened(), kBf16},
            {"m in bf16", half_m.widened(), kBf16},
            {"direction", direction, 1e-6},
            {"m of the direction", direction_m, 1e-6}};
  });
}

TEST(Targets, Adafactor) {
  compare_targets([](Ops& ops) -> Results {
    const AdafactorStep step{.decay = 0.8, .eps = 1e-30, .grad_scale = 0.5};
    Values grads = Values::random({9, 37}, 1), v({9, 37}, 0.1F), rows({9}, 0.1F),
           columns({37}, 0.1F);
    std::vector<double> row_sums(9), column_sums(37);
    ops.add_squares(grads, row_sums, column_sums);
    ops.adafactor_factors(step, row_sums, column_sums, rows, columns);
    Values factored = grads, params = Values::random({9, 37}, 2);
    ops.adafactor_factored_direction(step, factored, rows, 0, columns, 0);
    ops.adafactor_direction(step, grads, v);
    HalfValues half(params);
    ops.apply_update(1e-2, 0.99, factored, params);
    ops.apply_update(1e-2, 0.99, factored, half);
    return {{"rows", rows, 1e-6},
            {"columns", columns, 1e-6},
            {"factored direction", factored, 1e-6},
            {"direction", grads, 1e-6},
            {"v", v, 1e-6},
            {"params", params, 1e-6},
            {"params in bf16", half.widened(), kBf16}};
  });
}

}  // namespace
}  // namespace muster::trainer

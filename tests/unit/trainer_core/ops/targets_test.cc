// Every instruction set of this machine gives the same results, up to rounding.
#include <hwy/targets.h>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

struct Results {
  Values attention{{70, 20}}, lse{{1, 2, 70}}, d_qkv{{70, 40}}, d_table{{2, 8}}, activated{{9, 37}},
      normed{{9, 37}}, stats{{18}};
  Values losses{{9}}, logits = Values::random({9, 101}, 8, 5), kept{{2, 500}, 1};
  // A rank's queries of two runs, and of the other rank's keys the first run alone is seen.
  Values sums{{80, 20}}, sums_lse{{1, 2, 80}}, dq{{80, 20}}, dkv{{80, 20}}, logit_sums{{9, 3}};
  Values int8{{9, 37}}, e4m3{{9, 37}}, e5m2{{9, 37}}, row_amax{{9}}, column_amax{{37}};
};

Results run(Ops& ops) {
  Results r;
  const AttentionShape shape{.batch = 1,
                             .seq_len = 70,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 10,
                             .soft_cap = 2,
                             .window = 40,
                             .extra_zero = true,
                             .buckets = {8, 20}};
  Values table = Values::random({2, 8}, 9);
  Values qkv = Values::random({70, 40}, 1), d_out = Values::random({70, 20}, 2);
  Scratch scratch(cpu_attention_backward_elements(shape, 1));
  ops.attention(shape, qkv, table, r.attention, r.lse, scratch);
  ops.attention_backward(shape, qkv, table, r.attention, r.lse, d_out, r.d_qkv, r.d_table,
                         Accumulate::kNo, scratch);
  AttentionShape part = shape;
  part.seq_len = 80, part.positions = Positions({40, 40}, {80, 40}), part.window = 0;
  const Positions keys({0, 40}, {120, 40});
  Values part_qkv = Values::random({80, 40}, 1), block = Values::random({80, 20}, 10),
         part_d_out = Values::random({80, 20}, 2);
  Scratch part_scratch(cpu_attention_backward_elements(part, keys, 1));
  ops.attention_block(part, part_qkv, {block, keys}, table, {r.sums, r.sums_lse}, Accumulate::kNo,
                      part_scratch);
  ops.attention_block_backward(part, part_qkv, {block, keys}, table, r.sums, r.sums_lse, part_d_out,
                               {r.dq, r.dkv, r.d_table}, part_scratch);
  Values gate_up = Values::random({9, 74}, 3, 6), x = Values::random({9, 37}, 4),
         gain = Values::random({37}, 5), bias = Values::random({37}, 7);
  ops.activate({Activation::kGelu, true}, gate_up, r.activated);
  ops.norm({NormType::kLayer, 1e-5, 0}, x, {gain, bias}, r.normed, r.stats);
  ops.dropout({.rate = 0.3, .key = 3}, r.kept);
  ops.abs_max(x, ScaleOf::kRow, r.row_amax, Accumulate::kNo);
  ops.abs_max(x, ScaleOf::kColumn, r.column_amax, Accumulate::kNo);
  ops.quantize(NumberGrid::kInt8, x, ScaleOf::kRow, r.row_amax, RoundingNoise{.key = 3}, r.int8);
  ops.quantize(NumberGrid::kE4m3, x, ScaleOf::kColumn, r.column_amax, {}, r.e4m3);
  ops.quantize(NumberGrid::kE5m2, x, ScaleOf::kColumn, r.column_amax, {}, r.e5m2);
  Ids targets(9, 101, 6);
  Values weights({9}, 1);
  ops.logit_sums({}, {}, r.logits, targets, r.logit_sums);
  ops.cross_entropy_backward({10, 1e-3}, r.logits, targets, weights, r.losses, r.logits);
  return r;
}

TEST(Targets, Agree) {
  const auto ops = cpu_ops(1);
  const Results best = run(*ops);
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const Results other = run(*ops);
    EXPECT_EQ(other.kept, best.kept);  // a mask is the same on every processor
    EXPECT_EQ(other.row_amax, best.row_amax);
    EXPECT_EQ(other.column_amax, best.column_amax);
    EXPECT_EQ(other.int8, best.int8);  // so is a rounded number
    EXPECT_EQ(other.e4m3, best.e4m3);
    EXPECT_EQ(other.e5m2, best.e5m2);
    expect_near(other.attention, as_double(best.attention), 3e-6);
    expect_near(other.lse, as_double(best.lse), 3e-6);
    expect_near(other.d_qkv, as_double(best.d_qkv), 1e-5);
    expect_near(other.sums, as_double(best.sums), 3e-6);
    expect_near(other.sums_lse, as_double(best.sums_lse), 3e-6);
    expect_near(other.dq, as_double(best.dq), 1e-5);
    expect_near(other.dkv, as_double(best.dkv), 1e-5);
    expect_near(other.d_table, as_double(best.d_table), 1e-5);
    expect_near(other.logit_sums, as_double(best.logit_sums), 1e-6);
    expect_near(other.activated, as_double(best.activated), 1e-6);
    expect_near(other.normed, as_double(best.normed), 1e-6);
    expect_near(other.losses, as_double(best.losses), 1e-6);
    expect_near(other.logits, as_double(best.logits), 1e-6);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace muster::trainer

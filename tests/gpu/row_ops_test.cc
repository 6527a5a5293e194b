// Operations on rows of activations that op_cases.h does not have: norms, dropout, columns, sums.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

class RowOps : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Shapes, RowOps, testing::ValuesIn(row_cases()),
                         testing::PrintToStringParamName());

TEST_P(RowOps, FillScaleAdd) {
  Both x = activations(1), delta = activations(2), sum = activations(3);
  on_both([&](Ops& ops, Side side) {
    ops.scale(0.75, x.on(side));
    ops.add(x.on(side), delta.on(side), sum.on(side));
    ops.add(x.on(side), delta.on(side), x.on(side));
    ops.fill(delta.on(side), -1.5F);
  });
  expect_equal(sum, "x + delta");
  expect_equal(x, "x += delta");
  expect_equal(delta, "fill");
}

TEST_P(RowOps, NormalValuesOfAStream) {
  Both x(dtype(), {rows(), width()}, GetParam().skewed);
  for (const int64_t first : {int64_t{0}, int64_t{3}, (int64_t{1} << 34) + 1}) {
    on_both([&](Ops& ops, Side side) {
      ops.fill_normal({.key = 5, .stream = uint64_t{7} << 40, .std = 0.02}, first, width() + 5,
                      x.on(side));
    });
    expect_equal(x, "normal values");
  }
}

TEST_P(RowOps, CopyAndRound) {
  Both x = activations(1), same(dtype(), {rows(), width()}, true);
  Both wide = Both::random(DType::kF32, {rows(), width()}, 2),
       narrow(DType::kBf16, {rows(), width()}), widened(DType::kF32, {rows(), width()}, true);
  on_both([&](Ops& ops, Side side) {
    ops.copy(x.on(side), same.on(side));
    ops.copy(wide.on(side), narrow.on(side));
    ops.copy(narrow.on(side), widened.on(side));
  });
  expect_equal(same, "copy");
  expect_equal(narrow, "rounded copy");
  expect_equal(widened, "widened copy");
}

TEST_P(RowOps, Dropout) {
  Both x = activations(1, 3);
  DropoutMask mask{.rate = 0.3, .key = 0x123456789abcdef0, .location = 200'000};
  mask.elements.first_sample = uint64_t{1} << 40;
  on_both([&](Ops& ops, Side side) { ops.dropout(mask, x.on(side)); });
  expect_equal(x, "dropout");
}

TEST_P(RowOps, DropoutOfAPart) {
  if (rows() == 0) GTEST_SKIP() << "positions are of rows";
  Both x = activations(1);
  DropoutMask mask{.rate = 0.5, .key = 9, .location = 3};
  const Positions positions =
      rows() % 2 == 0 ? Positions({4, rows() / 2 - 1}, {40, 1}) : Positions({5, rows()});
  mask.elements = {.first_sample = 7,
                   .rows = {positions, rows() / 3},
                   .first_column = 2,
                   .columns = width() + 5};
  if (positions.count() == 0) GTEST_SKIP();
  on_both([&](Ops& ops, Side side) { ops.dropout(mask, x.on(side)); });
  expect_equal(x, "dropout of a part of a sample");
}

TEST_P(RowOps, Sums) {
  Both x = activations(1);
  const double sum = backends().cpu->sum(x.on(Side::kCpu));
  const double squares = backends().cpu->sum_of_squares(x.on(Side::kCpu));
  const double n = static_cast<double>(x.elements()) + 1;
  EXPECT_NEAR(backends().gpu->sum(x.on(Side::kGpu)), sum, 1e-12 * n);
  EXPECT_NEAR(backends().gpu->sum_of_squares(x.on(Side::kGpu)), squares, 1e-12 * n);
}

TEST_P(RowOps, Bias) {
  Both x = activations(1), bias = parameters(2), dbias = parameters(3), added = parameters(4);
  Both workspace(DType::kF32, {cpu_bias_backward_elements(width())});
  on_both([&](Ops& ops, Side side) {
    ops.bias_backward(x.on(side), dbias.on(side), Accumulate::kNo, workspace.workspace(side));
    ops.bias_backward(x.on(side), added.on(side), Accumulate::kYes, workspace.workspace(side));
    ops.add_bias(bias.on(side), x.on(side));
  });
  expect_equal(x, "x + bias");
  if (rows() == 0) return;  // there are no sums
  expect_same(dbias, bound_of(DType::kF32), "dbias");
  expect_same(added, bound_of(DType::kF32), "dbias +=");
}

TEST_P(RowOps, Norms) {
  for (const NormType type : {NormType::kRms, NormType::kLayer}) {
    const NormShape shape{.type = type, .eps = 1e-5, .gain_offset = 0.5};
    Both x = activations(1, 2), delta = activations(2), sum = activations(3), y = activations(4);
    Both again = activations(5), gain = parameters(6), bias = parameters(7);
    Both stats(DType::kF32, {shape.stats(rows())}), more(DType::kF32, {shape.stats(rows())});
    on_both([&](Ops& ops, Side side) {
      const NormWeights weights{gain.on(side), bias.on(side)};
      ops.add_norm(shape, x.on(side), delta.on(side), weights, sum.on(side), y.on(side),
                   stats.on(side));
      ops.norm(shape, sum.on(side), weights, again.on(side), more.on(side));
    });
    expect_equal(sum, "x + delta");
    expect_same(y, bound_of(dtype()), "y");
    expect_same(stats, bound_of(DType::kF32), "stats");
    // Remat relies on it: both have the bits of the norm of the stored sum.
    EXPECT_EQ(y.values(Side::kGpu), again.values(Side::kGpu));
    EXPECT_EQ(stats.values(Side::kGpu), more.values(Side::kGpu));
  }
}

TEST_P(RowOps, NormGradients) {
  for (const NormType type : {NormType::kRms, NormType::kLayer}) {
    const NormShape shape{.type = type, .eps = 1e-5, .gain_offset = 1};
    Both dy = activations(1), x = activations(2, 2), dx = activations(3), y = activations(4);
    Both gain = parameters(5), bias = parameters(6), dgain = parameters(7), dbias = parameters(8);
    Both stats(DType::kF32, {shape.stats(rows())});
    Both workspace(DType::kF32, {cpu_norm_backward_elements(width())});
    backends().cpu->norm(shape, x.on(Side::kCpu), {gain.on(Side::kCpu), bias.on(Side::kCpu)},
                         y.on(Side::kCpu), stats.on(Side::kCpu));
    stats.copy_to_gpu();
    const Accumulate accumulate = type == NormType::kRms ? Accumulate::kNo : Accumulate::kYes;
    on_both([&](Ops& ops, Side side) {
      ops.norm_backward(shape, dy.on(side), x.on(side), {gain.on(side), bias.on(side)},
                        stats.on(side), dx.on(side), {dgain.on(side), dbias.on(side)}, accumulate,
                        workspace.workspace(side));
    });
    // The norm of a single element is 1 / sqrt(1 + eps) for any value: its gradient consists of
    // rounding errors.
    const double bound = width() == 1 ? 1e-4 : bound_of(dtype(), 2e-5);
    expect_same(dx, std::max(bound, bound_of(dtype())), "dx");
    if (rows() == 0) return;
    expect_same(dgain, 2e-5, "dgain");
    expect_same(dbias, 2e-5, "dbias");
  }
}

TEST_P(RowOps, Columns) {
  for (const DType to_type : {DType::kF32, DType::kBf16}) {
    Both from = activations(1);
    Both to = Both::random(to_type, {rows(), width() + 6}, 2, 1, true);
    const int64_t columns = std::max<int64_t>(1, width() / 2), first = width() - columns;
    on_both([&](Ops& ops, Side side) {
      ops.copy_columns(from.on(side), first, to.on(side), 5, columns);
    });
    expect_equal(to, "columns");
  }
}

}  // namespace
}  // namespace muster::trainer

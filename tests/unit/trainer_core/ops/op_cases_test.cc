// Runs the table of op_cases.h: fp32 results against fp64 references, with one thread and several;
// bf16 results are those of fp32 operands of the same values, rounded, to the bit.
#include "tests/unit/trainer_core/ops/op_cases.h"

#include "tests/unit/trainer_core/ops/ops_fixture.h"

namespace muster::trainer {
namespace {

struct OpRun {
  int64_t rows, width;
  int threads;
};
// Rows with tails on every instruction set, and enough of them for several threads.
constexpr OpRun kRuns[] = {{1, 2, 1}, {3, 15, 3}, {5, 16, 1}, {3, 37, 3}, {300, 64, 3}};

class Op : public testing::TestWithParam<OpCase> {
 protected:
  // Random operands, rounded to bf16 if `half`. Kinks at 0 would spoil references' differences, and
  // the first elements are beyond exp's range in either direction.
  static std::vector<Values> operands(const OpRun& run, bool half) {
    std::vector<Values> result;
    for (const OpOperand& operand : GetParam().operands) {
      const bool per_row = operand.kind == OpOperand::Kind::kActivations;
      Values values = Values::random({per_row ? run.rows : 1, operand.widths * run.width},
                                     result.size() + 1, operand.scale);
      for (int64_t i = 0; i < values.size(); ++i)
        if (std::abs(values[i]) < 0.01F) values[i] = 0.5F;
      if (result.empty()) {
        values[0] = -200;
        values[1] = 200;
      }
      result.push_back(half && per_row ? HalfValues(values).widened() : values);
    }
    return result;
  }
  static void call(Ops& ops, std::vector<Values>& x) {
    GetParam().run(ops, std::vector<Tensor>(x.begin(), x.end()));
  }
};

TEST_P(Op, AgreesWithItsReference) {
  for (const OpRun& run : kRuns) {
    std::vector<Values> x = operands(run, false);
    std::vector<std::vector<double>> expected;
    for (const Values& values : x) expected.push_back(as_double(values));
    GetParam().reference(expected, run.width);
    const auto ops = cpu_ops(run.threads);
    call(*ops, x);
    ops->synchronize();
    for (size_t operand = 0; operand < x.size(); ++operand) {
      for (int64_t i = 0; i < x[operand].size(); ++i) {
        const double value = expected[operand][static_cast<size_t>(i)];
        ASSERT_NEAR(x[operand][i], value, GetParam().bound * (1 + std::abs(value)))
            << "operand " << operand << ", element " << i << " of (" << run.rows << ", "
            << run.width << ")";
      }
    }
  }
}

class Bf16Op : public Op {
 public:
  static std::vector<OpCase> cases() {
    std::vector<OpCase> cases = op_cases();
    std::erase_if(cases, [](const OpCase& op) { return !op.has_bf16; });
    return cases;
  }
};

TEST_P(Bf16Op, RoundsAfterwardsAlone) {
  for (const OpRun& run : kRuns) {
    std::vector<Values> wide = operands(run, true), parameters = wide;
    std::vector<HalfValues> narrow(wide.begin(), wide.end());
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < wide.size(); ++i) {
      const bool half = GetParam().operands[i].kind == OpOperand::Kind::kActivations;
      tensors.push_back(half ? Tensor(narrow[i]) : Tensor(parameters[i]));
    }
    const auto ops = cpu_ops(run.threads);
    call(*ops, wide);
    GetParam().run(*ops, tensors);
    ops->synchronize();
    for (size_t i = 0; i < wide.size(); ++i) {
      if (GetParam().operands[i].kind == OpOperand::Kind::kActivations) {
        EXPECT_EQ(narrow[i].widened(), HalfValues(wide[i]).widened()) << "operand " << i;
      } else {
        EXPECT_EQ(parameters[i], wide[i]) << "operand " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Op, testing::ValuesIn(op_cases()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Table, Bf16Op, testing::ValuesIn(Bf16Op::cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace muster::trainer

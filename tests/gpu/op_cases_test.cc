// Runs the table of tests/unit/trainer_core/ops/op_cases.h on both backends, aligned and not.
#include "tests/unit/trainer_core/ops/op_cases.h"

#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

class OpCases : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Shapes, OpCases, testing::ValuesIn(row_cases()),
                         testing::PrintToStringParamName());

TEST_P(OpCases, BothBackendsAgree) {
  for (const OpCase& op : op_cases()) {
    if (dtype() == DType::kBf16 && !op.has_bf16) continue;
    std::vector<Both> x;
    for (const OpOperand& operand : op.operands) {
      const int64_t columns = operand.widths * width();
      const bool per_row = operand.kind == OpOperand::Kind::kActivations;
      x.push_back(Both::random(per_row ? dtype() : DType::kF32,
                               per_row ? Both::Shape{rows(), columns} : Both::Shape{columns},
                               x.size() + 1, operand.scale, GetParam().skewed));
    }
    on_both([&](Ops& ops, Side side) {
      std::vector<Tensor> tensors;
      for (Both& operand : x) tensors.push_back(operand.on(side));
      op.run(ops, tensors);
    });
    for (Both& operand : x) expect_same(operand, bound_of(dtype()), op.name.c_str());
  }
}

}  // namespace
}  // namespace muster::trainer

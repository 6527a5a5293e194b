// The table of test cases of operations on rows of activations. A case has an operation's operands,
// its call and its fp64 reference. Two tests run the table: op_cases_test.cc compares with the
// references (in trainer_ops_test, and on the CUDA kernels in emulated_trainer_ops_test), and
// tests/gpu/op_cases_test.cc compares both backends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// An operand with random values.
struct OpOperand {
  // Activations are (rows, columns) of the case's type, fp32 or bf16; parameters (columns) fp32.
  enum class Kind { kActivations, kParameters };

  Kind kind = Kind::kActivations;
  int64_t widths = 1;  // columns = widths * width
  float scale = 1;     // values are random in (-scale, scale)
};

// One test case.
struct OpCase {
  std::string name;
  std::vector<OpOperand> operands;
  std::function<void(Ops& ops, const std::vector<Tensor>& x)> run;
  // Computes the operation in fp64, on the operands' elements.
  std::function<void(std::vector<std::vector<double>>& x, int64_t width)> reference;
  double bound = 2e-6;  // bound on an fp32 element's error, relative to 1 + the element's magnitude
  bool has_bf16 = true;
};

// Returns the cases in the order of the table.
std::vector<OpCase> op_cases();

// Returns the activation's value f(x) in fp64.
double activation_reference(Activation kind, double x);

}  // namespace muster::trainer

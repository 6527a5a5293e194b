// The table of test cases of operations on rows of activations. A row has an operation's operands,
// its call and its fp64 reference. Two programs run the table: op_cases_test.cc against the
// references (trainer_ops_test, and emulated_trainer_ops_test on the CUDA kernels), and
// tests/gpu/op_cases_test.cc on both backends, which must agree.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer_core/ops/ops.h"

namespace muster::trainer {

struct OpOperand {
  // Activations are (rows, columns) of the case's type, fp32 or bf16; parameters (columns) fp32.
  enum class Kind { kActivations, kParameters };

  Kind kind = Kind::kActivations;
  int64_t widths = 1;  // columns = widths * width
  float scale = 1;     // random values in (-scale, scale)
};

struct OpCase {
  std::string name;
  std::vector<OpOperand> operands;
  std::function<void(Ops& ops, const std::vector<Tensor>& x)> run;
  // Does the same to the operands' elements in fp64.
  std::function<void(std::vector<std::vector<double>>& x, int64_t width)> reference;
  double bound = 2e-6;  // of an fp32 element's error, relative to 1 + its magnitude
  bool has_bf16 = true;
};

// Returns the cases in the order of the table.
std::vector<OpCase> op_cases();

// Returns f(x) in fp64.
double activation_reference(Activation kind, double x);

}  // namespace muster::trainer

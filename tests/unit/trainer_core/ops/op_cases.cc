#include "tests/unit/trainer_core/ops/op_cases.h"

#include <algorithm>
#include <cmath>

namespace muster::trainer {
namespace {

using Elements = std::vector<std::vector<double>>;
using Kind = OpOperand::Kind;

double derivative_of(Activation kind, double x) {
  constexpr double kStep = 1e-3;
  const auto f = [&](double shift) { return activation_reference(kind, x + shift); };
  return (8 * (f(kStep) - f(-kStep)) - (f(2 * kStep) - f(-2 * kStep))) / (12 * kStep);
}

// x[0]: rows [gate | up] or [input]; x[1]: the output, or its gradient.
OpCase forward_case(const ActivationRow& row, bool gated) {
  const MlpActivation f{row.activation, gated};
  const auto widths = static_cast<int64_t>(gated ? 2 : 1);
  return {.name = std::string(row.name) + (gated ? "_gated" : ""),
          .operands = {{.widths = widths, .scale = 4}, {}},
          .run = [f](Ops& ops, const std::vector<Tensor>& x) { ops.activate(f, x[0], x[1]); },
          .reference =
              [f, widths](Elements& x, int64_t width) {
                for (size_t i = 0; i < x[1].size(); ++i) {
                  const auto columns = static_cast<size_t>(width);
                  const size_t at =
                      i / columns * columns * static_cast<size_t>(widths) + i % columns;
                  x[1][i] = activation_reference(f.kind, x[0][at]);
                  if (f.gated) x[1][i] *= x[0][at + columns];
                }
              },
          .bound = 4e-6};
}

OpCase backward_case(const ActivationRow& row, bool gated) {
  const MlpActivation f{row.activation, gated};
  const auto widths = static_cast<int64_t>(gated ? 2 : 1);
  return {.name = std::string(row.name) + (gated ? "_gated" : "") + "_backward",
          .operands = {{.widths = widths, .scale = 4}, {}},
          .run = [f](Ops& ops,
                     const std::vector<Tensor>& x) { ops.activate_backward(f, x[1], x[0], x[0]); },
          .reference =
              [f, widths](Elements& x, int64_t width) {
                for (size_t i = 0; i < x[1].size(); ++i) {
                  const auto columns = static_cast<size_t>(width);
                  const size_t at =
                      i / columns * columns * static_cast<size_t>(widths) + i % columns;
                  const double in = x[0][at], dout = x[1][i];
                  x[0][at] = dout * derivative_of(f.kind, in);
                  if (!f.gated) continue;
                  x[0][at] *= x[0][at + columns];
                  x[0][at + columns] = dout * activation_reference(f.kind, in);
                }
              },
          .bound = 1e-5};
}

}  // namespace

double activation_reference(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
  }
  return 0;
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases = {
      {.name = "scale",
       .operands = {{}},
       .run = [](Ops& ops, const std::vector<Tensor>& x) { ops.scale(0.75, x[0]); },
       .reference =
           [](Elements& x, int64_t) {
             for (double& value : x[0]) value *= 0.75;
           }},
      {.name = "add",
       .operands = {{}, {}, {}},
       .run = [](Ops& ops, const std::vector<Tensor>& x) { ops.add(x[0], x[1], x[2]); },
       .reference =
           [](Elements& x, int64_t) {
             for (size_t i = 0; i < x[0].size(); ++i) x[2][i] = x[0][i] + x[1][i];
           }},
      {.name = "add_bias",
       .operands = {{}, {.kind = Kind::kParameters}},
       .run = [](Ops& ops, const std::vector<Tensor>& x) { ops.add_bias(x[1], x[0]); },
       .reference =
           [](Elements& x, int64_t width) {
             for (size_t i = 0; i < x[0].size(); ++i)
               x[0][i] += x[1][i % static_cast<size_t>(width)];
           }},
      {.name = "soft_cap",
       .operands = {{.scale = 90}},
       .run = [](Ops& ops, const std::vector<Tensor>& x) { ops.soft_cap(30, x[0]); },
       .reference =
           [](Elements& x, int64_t) {
             for (double& value : x[0]) value = 30 * std::tanh(value / 30);
           },
       .has_bf16 = false}};
  for (const ActivationRow& row : kActivationRows) {
    for (const bool gated : {false, true}) {
      cases.push_back(forward_case(row, gated));
      cases.push_back(backward_case(row, gated));
    }
  }
  return cases;
}

}  // namespace muster::trainer

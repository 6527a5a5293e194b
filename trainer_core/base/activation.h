// The activations of MLPs and experts: an enumerator and a row of kActivationRows for each.
// Settings, JSON files, Hugging Face configs, messages and tests iterate over the rows. The
// formulas are in ops/activation_formulas.inc. docs/howto/add-an-activation.md lists the steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

// kGelu is the tanh approximation, which all supported families use (Hendrycks and Gimpel, 2016).
enum class Activation : uint8_t { kSilu, kGelu, kRelu };

struct ActivationRow {
  Activation activation;
  std::string_view name;   // in MaxText's lists and in our JSON files
  std::string_view gated;  // the name of an MLP with a gate, which ['…', 'linear'] selects
  std::string_view plain;  // the name of an MLP without one; empty: jobs may not select it
  // Values of Hugging Face's `hidden_act`; the first one is exported. Empty: none.
  std::array<std::string_view, 3> hugging_face;
};

// In the enum's order.
constexpr ActivationRow kActivationRows[] = {
    {Activation::kSilu, "silu", "SwiGLU", "", {"silu", "swish"}},
    {Activation::kGelu, "gelu", "GeGLU", "GELU", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},
    {Activation::kRelu, "relu", "ReGLU", "ReLU", {"relu"}}};

constexpr auto kActivationNames = [] {
  ValueNames<std::size(kActivationRows)> names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (kActivationRows[i].activation != static_cast<Activation>(i)) throw "rows in another order";
    names[i] = kActivationRows[i].name;
  }
  return names;
}();

constexpr const ActivationRow& row_of(Activation activation) {
  return kActivationRows[static_cast<size_t>(activation)];
}

}  // namespace muster::trainer

// The activations of MLPs and experts: each has an enumerator and a row of kActivationRows.
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

// kGelu is the tanh approximation of GELU (Hendrycks and Gimpel, 2016), which all supported model
// families use.
enum class Activation : uint8_t { kSilu, kGelu, kRelu };

// The names of an activation in each format.
struct ActivationRow {
  Activation activation;
  std::string_view name;  // name in MaxText's lists and in Muster's JSON files
  // Name of the gated MLP, which mlp_activations=['<name>', 'linear'] selects.
  std::string_view gated;
  std::string_view plain;  // name of the MLP without a gate; empty: jobs may not select it
  // Values of `hidden_act` in Hugging Face's configs; exports write the first one. Unused places
  // are empty.
  std::array<std::string_view, 3> hugging_face;
};

// One row for each activation, in the order of the enum.
constexpr ActivationRow kActivationRows[] = {
    {Activation::kSilu, "silu", "SwiGLU", "", {"silu", "swish"}},
    {Activation::kGelu, "gelu", "GeGLU", "GELU", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},
    {Activation::kRelu, "relu", "ReGLU", "ReLU", {"relu"}}};

// The names of the activations, in the order of the enum.
constexpr auto kActivationNames = [] {
  ValueNames<std::size(kActivationRows)> names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (kActivationRows[i].activation != static_cast<Activation>(i)) throw "rows in another order";
    names[i] = kActivationRows[i].name;
  }
  return names;
}();

// Returns the row of an activation.
constexpr const ActivationRow& row_of(Activation activation) {
  return kActivationRows[static_cast<size_t>(activation)];
}

}  // namespace muster::trainer

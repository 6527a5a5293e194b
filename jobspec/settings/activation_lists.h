// Builds the list of valid values of the keys mlp_activations and expert_activations. Its source is
// the trainer's table of activations (trainer_core/base/activation.h).
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "trainer_core/base/activation.h"

namespace muster::jobspec {

// A string that is built at compile time.
class ActivationText {
 public:
  constexpr void add(std::string_view text) {
    for (const char c : text) text_.at(size_++) = c;
  }
  constexpr std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 1024> text_{};
  size_t size_ = 0;
};

// Returns `first` and the valid lists, separated by '|'. The lists of gated activations come before
// those without a gate.
constexpr ActivationText allowed_activations(std::string_view first) {
  ActivationText text;
  text.add(first);
  const auto add = [&](std::string_view name, std::string_view end) {
    if (!text.view().empty()) text.add("|");
    text.add("['");
    text.add(name);
    text.add(end);
  };
  for (const trainer::ActivationRow& row : trainer::kActivationRows) add(row.name, "', 'linear']");
  for (const trainer::ActivationRow& row : trainer::kActivationRows)
    if (!row.plain.empty()) add(row.name, "']");
  return text;
}

// Returns "this version has SwiGLU, … and ReLU".
constexpr ActivationText supported_activations() {
  std::array<std::string_view, 2 * std::size(trainer::kActivationRows)> names;
  size_t count = 0;
  for (const trainer::ActivationRow& row : trainer::kActivationRows) names.at(count++) = row.gated;
  for (const trainer::ActivationRow& row : trainer::kActivationRows)
    if (!row.plain.empty()) names.at(count++) = row.plain;
  ActivationText text;
  text.add("this version has ");
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text.add(i + 1 == count ? " and " : ", ");
    text.add(names.at(i));
  }
  return text;
}

inline constexpr ActivationText kMlpActivations = allowed_activations("");
inline constexpr ActivationText kExpertActivations = allowed_activations("[]");
inline constexpr ActivationText kSupportedActivations = supported_activations();

}  // namespace muster::jobspec

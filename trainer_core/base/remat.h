// Rematerialisation: which tensors of a layer's forward pass are saved for its backward pass, and
// which are recomputed. Each policy selects one set of placements (LayerPlacements). Losses and
// gradients are bit-identical under all policies.
//
// Policies have the names and the meaning of MaxText's `remat_policy`. MaxText names tensors that
// differ from the buffers of our layers; this table maps them:
//
//   MaxText's name            field of LayerPlacements
//   decoder_layer_input       input: always saved, everything else is computed from it
//   query_proj, key_proj,     qkv: one GEMM writes all three to one buffer
//   value_proj; qkv_proj
//   context                   context, with the softmax's denominators (lse)
//   out_proj                  middle, which is input + out_proj: it has the same size and saves one
//                             addition. In a parallel block: none, because no gradient needs it
//   mlpwi_0, mlpwi_1; mlpwi   gate_up: one GEMM writes both to one buffer
//   mlpwo                     none: no gradient needs it, and its sum with the residual stream is
//                             the input of the next layer
//
// Norms and the output of the activation take little time to recompute and much memory to save, so
// only the policy `none` saves them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

enum class RematPolicy : uint8_t {
  kNone,
  kFull,
  kMinimal,
  kMinimalWithContext,
  kSaveDotWithContextExceptMlp,
  kSaveDotExceptMlpwi,
  kSaveDotExceptMlp,
  kSaveQkvProj,
  kSaveOutProj,
  kQkvProjOffloaded,
  kMinimalOffloaded,
  kCustom,
};
constexpr ValueNames<12> kRematPolicyNames = {"none",
                                              "full",
                                              "minimal",
                                              "minimal_with_context",
                                              "save_dot_with_context_except_mlp",
                                              "save_dot_except_mlpwi",
                                              "save_dot_except_mlp",
                                              "save_qkv_proj",
                                              "save_out_proj",
                                              "qkv_proj_offloaded",
                                              "minimal_offloaded",
                                              "custom"};

// How the backward pass gets a tensor of the forward pass: recomputed (kRemat), saved in device
// memory (kDevice), or saved in host memory (kOffload).
enum class Placement : uint8_t { kRemat, kDevice, kOffload };
constexpr ValueNames<3> kPlacementNames = {"remat", "device", "offload"};

// The placement of each tensor of a layer. The softmax's denominators (lse) have the placement of
// `context`. `rest` is the norms, their statistics and the activation's output, which are never
// offloaded.
struct LayerPlacements {
  Placement input = Placement::kDevice;  // never kRemat
  Placement qkv = Placement::kRemat;
  Placement context = Placement::kRemat;
  Placement middle = Placement::kRemat;
  Placement gate_up = Placement::kRemat;
  Placement rest = Placement::kRemat;

  friend bool operator==(const LayerPlacements&, const LayerPlacements&) = default;
};

// The keys of remat_policy=custom, with MaxText's defaults.
struct CustomRemat {
  Placement decoder_layer_input = Placement::kDevice;
  Placement context = Placement::kRemat;
  Placement mlpwi = Placement::kRemat;
  Placement mlpwi_0 = Placement::kRemat;
  Placement mlpwi_1 = Placement::kRemat;
  Placement mlpwo = Placement::kRemat;
  Placement query_proj = Placement::kRemat;
  Placement key_proj = Placement::kRemat;
  Placement value_proj = Placement::kRemat;
  Placement qkv_proj = Placement::kRemat;
  Placement out_proj = Placement::kRemat;

  friend bool operator==(const CustomRemat&, const CustomRemat&) = default;
};

// A key of CustomRemat and its field.
struct CustomRematKey {
  std::string_view name;
  Placement CustomRemat::*field;
};
constexpr std::array<CustomRematKey, 11> kCustomRematKeys = {{
    {"decoder_layer_input", &CustomRemat::decoder_layer_input},
    {"context", &CustomRemat::context},
    {"mlpwi", &CustomRemat::mlpwi},
    {"mlpwi_0", &CustomRemat::mlpwi_0},
    {"mlpwi_1", &CustomRemat::mlpwi_1},
    {"mlpwo", &CustomRemat::mlpwo},
    {"query_proj", &CustomRemat::query_proj},
    {"key_proj", &CustomRemat::key_proj},
    {"value_proj", &CustomRemat::value_proj},
    {"qkv_proj", &CustomRemat::qkv_proj},
    {"out_proj", &CustomRemat::out_proj},
}};

// Returns InvalidArgument with both keys if parts of one buffer have different placements. The key
// of a complete buffer (qkv_proj, mlpwi) applies to those of its parts whose own key is `remat`.
absl::Status validate(const CustomRemat& custom);

// Returns the placements of a policy. `custom` is used with kCustom only, and must then be valid.
LayerPlacements layer_placements(RematPolicy policy, const CustomRemat& custom = {});

}  // namespace muster::trainer

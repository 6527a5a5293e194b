// Rematerialisation: which tensors of a layer's forward pass are saved for its backward pass, and
// which are recomputed. A policy names one LayerPlacements. Losses and gradients are bit-identical
// under all policies.
//
// Names and meaning are MaxText's (`remat_policy`), mapped to the tensors of a layer:
//
//   MaxText's name            here
//   decoder_layer_input       input: always saved, everything else is computed from it
//   query_proj, key_proj,     qkv: one GEMM and one buffer, so they are saved together
//   value_proj; qkv_proj
//   context                   context, and the softmax's denominators (lse), useless without it
//   out_proj                  middle, which is input + out_proj: the same bytes, and one addition
//                             less; in a parallel block nothing, because no gradient needs it
//   mlpwi_0, mlpwi_1; mlpwi   gate_up: one GEMM and one buffer
//   mlpwo                     nothing: the layer's output is the next one's input, and no gradient
//                             needs mlpwo alone
//
// Norms and the activation's output cost little time and much memory: only `none` saves them.
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

// The fate of a tensor between forward and backward: recomputed, saved in device memory, or saved
// in host memory.
enum class Placement : uint8_t { kRemat, kDevice, kOffload };
constexpr ValueNames<3> kPlacementNames = {"remat", "device", "offload"};

// The placement of each tensor of a layer. `lse` follows `context`; `rest` is the norms, their
// statistics and the activation's output, which are never offloaded.
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

// InvalidArgument names both keys if parts of one buffer have different placements. A buffer's own
// name (qkv_proj, mlpwi) applies to all its parts that are `remat`.
absl::Status validate(const CustomRemat& custom);

// Maps a policy to its placements. `custom` is read, and must be valid, only with kCustom.
LayerPlacements layer_placements(RematPolicy policy, const CustomRemat& custom = {});

}  // namespace muster::trainer

#include "trainer_core/base/remat.h"

#include <span>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

constexpr Placement kRemat = Placement::kRemat, kDevice = Placement::kDevice,
                    kOffload = Placement::kOffload;

using Field = Placement CustomRemat::*;

// A buffer with several tensors of MaxText: the key of the buffer, and those of its parts.
struct Fused {
  Field whole;
  std::span<const Field> parts;
};
constexpr Field kQkvParts[] = {&CustomRemat::query_proj, &CustomRemat::key_proj,
                               &CustomRemat::value_proj};
constexpr Field kGateUpParts[] = {&CustomRemat::mlpwi_0, &CustomRemat::mlpwi_1};
constexpr Fused kQkv = {&CustomRemat::qkv_proj, kQkvParts};
constexpr Fused kGateUp = {&CustomRemat::mlpwi, kGateUpParts};

std::string_view name_of(Field field) {
  for (const CustomRematKey& key : kCustomRematKeys) {
    if (key.field == field) return key.name;
  }
  return "";
}

std::string show(const CustomRemat& custom, Field field) {
  return absl::StrCat(av(name_of(field)), "=", av(name_of(kPlacementNames, custom.*field)));
}

// Returns the key that determines the placement of the buffer.
Field field_of(const CustomRemat& custom, const Fused& fused) {
  return custom.*fused.whole != kRemat ? fused.whole : fused.parts.front();
}

absl::Status check_fused(const CustomRemat& custom, const Fused& fused) {
  const Field first = field_of(custom, fused);
  for (const Field part : fused.parts) {
    if (custom.*part == custom.*first || (first == fused.whole && custom.*part == kRemat)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(show(custom, first), " and ", show(custom, part),
                     ": they lie in one buffer and are saved together; give both the same"));
  }
  return absl::OkStatus();
}

LayerPlacements custom_placements(const CustomRemat& custom) {
  return {.input = custom.decoder_layer_input,
          .qkv = custom.*field_of(custom, kQkv),
          .context = custom.context,
          .middle = custom.out_proj,
          .gate_up = custom.*field_of(custom, kGateUp)};
}

}  // namespace

absl::Status validate(const CustomRemat& custom) {
  if (custom.decoder_layer_input == kRemat) {
    return absl::InvalidArgumentError(
        "decoder_layer_input=remat: everything else of a layer is recomputed from its input; set "
        "decoder_layer_input=device or decoder_layer_input=offload");
  }
  if (auto status = check_fused(custom, kQkv); !status.ok()) return status;
  return check_fused(custom, kGateUp);
}

LayerPlacements layer_placements(RematPolicy policy, const CustomRemat& custom) {
  switch (policy) {
    case RematPolicy::kNone:
      return {kDevice, kDevice, kDevice, kDevice, kDevice, kDevice};
    case RematPolicy::kFull:
      return {};
    case RematPolicy::kMinimal:
      return {.qkv = kDevice, .middle = kDevice, .gate_up = kDevice};
    case RematPolicy::kMinimalWithContext:
      return {.qkv = kDevice, .context = kDevice, .middle = kDevice, .gate_up = kDevice};
    case RematPolicy::kSaveDotWithContextExceptMlp:
      return {.qkv = kDevice, .context = kDevice, .middle = kDevice};
    case RematPolicy::kSaveDotExceptMlpwi:  // also saves mlpwo, which needs no memory
    case RematPolicy::kSaveDotExceptMlp:
      return {.qkv = kDevice, .middle = kDevice};
    case RematPolicy::kSaveQkvProj:
      return {.qkv = kDevice};
    case RematPolicy::kSaveOutProj:
      return {.middle = kDevice};
    case RematPolicy::kQkvProjOffloaded:
      return {.qkv = kOffload};
    case RematPolicy::kMinimalOffloaded:
      return {.qkv = kOffload, .middle = kOffload, .gate_up = kOffload};
    case RematPolicy::kCustom:
      return custom_placements(custom);
  }
  MUSTER_CHECK(false) << "remat policy " << static_cast<int>(policy);
  return {};
}

}  // namespace muster::trainer

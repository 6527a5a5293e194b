#include "jobspec/preset_name.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

// Names of Pax and MaxText that users may type, and why they are not supported.
struct NotYet {
  std::string_view part;  // a part of the name
  std::string_view reason;
};
constexpr NotYet kNotYet[] = {
    {"Lambada",
     "it evaluates a checkpoint; give the config without Lambada (Pile126M for Lambada126M), "
     "--mode=eval and eval_tasks=lambada=FILE"},
};

// AXLearn's fuji.py: the divisor of a batch that is meant for 128 and more hosts.
constexpr int64_t kSingleHostDivisor = 128;

absl::Status refuse(std::string_view name, std::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("model_name=", av(name), ": ", av(reason)));
}

// The sizes for which AXLearn has a -single-host variant.
bool has_single_host(absl::string_view file) {
  return absl::StartsWith(file, "fuji-1B-") || absl::StartsWith(file, "fuji-3B-") ||
         absl::StartsWith(file, "fuji-7B-") || absl::StartsWith(file, "fuji-8B-");
}

// Each suffix at most once, in any order. `-flash` has no effect: attention is always blocked flash
// attention.
absl::StatusOr<PresetName> parse_fuji(std::string_view name) {
  absl::string_view rest = av(name);
  bool flash = false, single_host = false, fp8 = false;
  while (true) {
    if (!flash && absl::ConsumeSuffix(&rest, "-flash")) {
      flash = true;
    } else if (!single_host && absl::ConsumeSuffix(&rest, "-single-host")) {
      single_host = true;
    } else if (!fp8 && absl::ConsumeSuffix(&rest, "-fp8")) {
      fp8 = true;
    } else {
      break;
    }
  }
  PresetName preset{.file = std::string(rest)};
  if (single_host && !has_single_host(rest)) {
    return refuse(name, "AXLearn has -single-host for 1B, 3B, 7B and 8B only");
  }
  if (single_host) preset.batch_divisor = kSingleHostDivisor;
  preset.fp8 = fp8;
  return preset;
}

}  // namespace

absl::StatusOr<PresetName> parse_preset_name(std::string_view name) {
  for (const NotYet& row : kNotYet) {
    if (absl::StrContains(av(name), av(row.part))) return refuse(name, row.reason);
  }
  if (absl::StartsWith(av(name), "fuji-")) return parse_fuji(name);
  return PresetName{.file = std::string(name)};
}

}  // namespace muster::jobspec

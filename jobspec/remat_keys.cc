#include "jobspec/remat_keys.h"

#include <array>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/nearest.h"

namespace muster::jobspec {
namespace {

// MaxText's policies between none and full (2024-06 and later).
constexpr std::array<std::string_view, 14> kRematPolicies = {
    "none",
    "full",
    "minimal",
    "minimal_flash",
    "minimal_with_context",
    "minimal_with_quantization",
    "minimal_with_context_and_quantization",
    "save_dot_with_context_except_mlp",
    "save_dot_except_mlpwi",
    "save_dot_except_mlp",
    "save_qkv_proj",
    "save_out_proj",
    "qkv_proj_offloaded",
    "minimal_offloaded"};

}  // namespace

absl::Status read_remat(SettingsReader& reader, trainer::RematPolicy& policy,
                        std::vector<std::string>& warnings) {
  std::string name = "full";
  reader.read("remat_policy", name);
  policy = name == "none" ? trainer::RematPolicy::kNone : trainer::RematPolicy::kFull;
  for (const std::string_view known : kRematPolicies) {
    if (name != known) continue;
    if (name != "none" && name != "full") {
      warnings.push_back(absl::StrCat(
          "remat_policy=", name, " runs as full: the same numbers in less memory, but slower"));
    }
    return absl::OkStatus();
  }
  const std::string_view nearest = nearest_name(name, kRematPolicies);
  return absl::InvalidArgumentError(
      absl::StrCat("remat_policy=", show(name), ": there is no such policy; did you mean ",
                   nearest.empty() ? "none or full" : av(nearest), "?"));
}

}  // namespace muster::jobspec

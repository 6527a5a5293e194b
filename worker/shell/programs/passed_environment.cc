#include "worker/shell/programs/passed_environment.h"

#include <algorithm>
#include <array>

#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"

namespace muster::worker {
namespace {

constexpr std::array<std::string_view, 9> kWords = {"TOKEN",      "SECRET",     "SECRETS",
                                                    "PASSWORD",   "PASSWORDS",  "PASSWD",
                                                    "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"};
constexpr std::array<std::string_view, 5> kNodeNames = {"PATH", "LD_LIBRARY_PATH", "LANG",
                                                        "LANGUAGE", "TZ"};
constexpr std::array<std::string_view, 14> kNodeFamilies = {
    "LC_",  "CUDA_", "NVIDIA_", "NCCL_", "RCCL_", "ROCR_", "HIP_",
    "UCX_", "FI_",   "GLOO_",   "OMP_",  "KMP_",  "MKL_",  "TORCH_NCCL_"};

}  // namespace

bool is_credential(std::string_view name) {
  bool is_first = true;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(av(name), '_'))) {
    const std::string upper = absl::AsciiStrToUpper(word);
    if (std::ranges::find(kWords, upper) != kWords.end()) return true;
    if (!is_first && (upper == "KEY" || upper == "APIKEY")) return true;
    is_first = false;
  }
  return false;
}

bool matches(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](std::string_view pattern) {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : name == pattern;
  });
}

bool is_passed(std::string_view name, const std::vector<std::string>& patterns) {
  return !is_credential(name) || matches(name, patterns);
}

bool is_passed_to_users(std::string_view name, const std::vector<std::string>& patterns) {
  const bool is_about_node = std::ranges::find(kNodeNames, name) != kNodeNames.end() ||
                             std::ranges::any_of(kNodeFamilies, [&](std::string_view family) {
                               return name.starts_with(family);
                             });
  return matches(name, patterns) || (is_about_node && !is_credential(name));
}

}  // namespace muster::worker

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

bool is_passed(std::string_view name, const std::vector<std::string>& patterns) {
  return !is_credential(name) || std::ranges::any_of(patterns, [&](std::string_view pattern) {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : name == pattern;
  });
}

}  // namespace muster::worker

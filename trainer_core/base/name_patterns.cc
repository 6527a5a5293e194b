#include "trainer_core/base/name_patterns.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

absl::StatusOr<NamePatterns> NamePatterns::compile(const std::vector<std::string>& patterns) {
  if (patterns.size() > kNamePatternsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(patterns.size(), " patterns, but at most ", kNamePatternsMax, " are allowed"));
  }
  NamePatterns compiled;
  for (const std::string& pattern : patterns) {
    if (pattern.size() > kNamePatternBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("a pattern has ", pattern.size(),
                                                     " bytes, but must have at most ",
                                                     kNamePatternBytesMax));
    }
    try {
      compiled.patterns_.emplace_back(pattern, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& e) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", pattern, "\" is no regular expression: ", e.what()));
    }
  }
  return compiled;
}

bool NamePatterns::match(const std::string& name) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::regex& pattern) { return std::regex_search(name, pattern); });
}

}  // namespace muster::trainer

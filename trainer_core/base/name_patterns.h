// Regular expressions that select parameters by name, as in MaxText's adamw_mask: one match
// suffices, anywhere in the name (Python's re.search).
#pragma once

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Bounds: a mask names kinds of parameters, not every name, and std::regex recurses once per
// character.
constexpr size_t kNamePatternsMax = 64;
constexpr size_t kNamePatternBytesMax = 256;

// Immutable and thread-safe.
class NamePatterns {
 public:
  // InvalidArgument quotes the pattern that is not a regular expression (ECMAScript's) or is too
  // long.
  static absl::StatusOr<NamePatterns> compile(const std::vector<std::string>& patterns);

  bool match(const std::string& name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace muster::trainer

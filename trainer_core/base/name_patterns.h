// Regular expressions that select parameters by name, as in MaxText's adamw_mask. A parameter is
// selected if any pattern matches any part of its name (Python's re.search).
#pragma once

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The maximum number of patterns, and the maximum bytes of one. A mask needs few patterns, because
// it lists kinds of parameters; std::regex recurses once per character, so long patterns could
// exhaust the stack.
constexpr size_t kNamePatternsMax = 64;
constexpr size_t kNamePatternBytesMax = 256;

// A set of compiled patterns. Immutable and thread-safe.
class NamePatterns {
 public:
  // Compiles ECMAScript's regular expressions. Returns InvalidArgument, with the pattern, if a
  // pattern is invalid or too long.
  static absl::StatusOr<NamePatterns> compile(const std::vector<std::string>& patterns);

  // Returns whether any pattern matches a part of `name`.
  bool match(const std::string& name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace muster::trainer

// Regular expressions that choose parameters by their names, as in MaxText's adamw_mask: one is enough, and it may match
// anywhere in the name (Python's re.search).
#pragma once

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// A mask names kinds of parameters; a list of every name belongs elsewhere. std::regex recurses once per character.
constexpr size_t kNamePatternsMax = 64;
constexpr size_t kNamePatternBytesMax = 256;

// Immutable: any thread.
class NamePatterns {
 public:
  // InvalidArgument quotes the pattern that is no regular expression (ECMAScript's), or is too long.
  static absl::StatusOr<NamePatterns> compile(const std::vector<std::string>& patterns);

  bool match(const std::string& name) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace muster::trainer

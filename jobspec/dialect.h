// Translates command lines of Pax (--fdl_config, --fdl.NAME=VALUE, CONFIG=…) and AXLearn (--module,
// --config, …) into settings with MaxText's names, so that all three are resolved in one way. Pure:
// words in, settings out.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

enum class Dialect { kMaxText, kPax, kAxlearn };

// Detects the dialect by the flags that only one of them has.
Dialect dialect_of(const std::vector<std::string>& words);

// A setting that a flag stands for; `flag` is the word as typed, without its value.
struct FlagSetting {
  std::string key;
  std::string text;
  std::string flag;
};

struct Translation {
  std::vector<FlagSetting> settings;   // in order: the last of a repeated key wins
  std::string config_path;             // a base.yml among the flags; may be empty
  std::vector<std::string> overrides;  // MaxText's key=value words, which override flags
  std::vector<std::string> warnings;   // one sentence per flag without effect
};

// Every word is used, warned about, or an error: InvalidArgument names the flag and the nearest
// known one, or the flag, its value and what is allowed. Requires that `words` has no options of
// Muster's own.
absl::StatusOr<Translation> translate(const std::vector<std::string>& words);

}  // namespace muster::jobspec

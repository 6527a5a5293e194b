// Translates command lines of Pax (--fdl_config, --fdl.NAME=VALUE, CONFIG=…) and AXLearn (--module,
// --config, …) into settings with MaxText's names, so that all three are resolved in one way. Pure:
// words in, settings out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

enum class Dialect { kMaxText, kPax, kAxlearn };

// Variables of a process, as NAME and VALUE.
using Environment = std::vector<std::pair<std::string, std::string>>;

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
// Muster's own. Variables of Pax's scripts count in the environment as well (variables.h); words
// override them. A line of MaxText's is only freed of the words without effect (launcher.h).
absl::StatusOr<Translation> translate(std::vector<std::string> words,
                                      const Environment& environment = {});

}  // namespace muster::jobspec

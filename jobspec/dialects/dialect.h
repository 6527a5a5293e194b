// Translates command lines of Pax (--fdl_config, --fdl.NAME=VALUE, CONFIG=…) and AXLearn (--module,
// --config, …) into settings with MaxText's names, so that the rest of jobspec handles one dialect
// only. All functions are pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// The program to which a command line belongs.
enum class Dialect { kMaxText, kPax, kAxlearn };

// Environment variables of a process, as pairs of name and value.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the dialect of a command line, by flags that only one dialect has.
Dialect dialect_of(const std::vector<std::string>& words);

// A setting that a flag makes. `flag`: the flag as typed, without its value.
struct FlagSetting {
  std::string key;
  std::string text;
  std::string flag;
};

// The meaning of a command line.
struct Translation {
  // settings in the flags' order; the last of a repeated key wins
  std::vector<FlagSetting> settings;
  std::string config_path;             // path of a base.yml among the words; may be empty
  std::vector<std::string> overrides;  // key=value words, which override flags
  std::vector<std::string> warnings;   // one sentence per flag without effect
};

// Translates a command line. No word is ignored silently: each sets something, causes a warning, or
// is an error. InvalidArgument names an unknown flag and the nearest known one, or a flag, its
// value and what is allowed. Requires that `words` has no options of Muster itself. Variables of
// Pax's scripts in `environment` also count (variables.h); words override them. For a line of
// MaxText, only removes words without effect (launcher.h).
absl::StatusOr<Translation> translate(std::vector<std::string> words,
                                      const Environment& environment = {});

}  // namespace muster::jobspec

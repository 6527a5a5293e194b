// Command lines in the spelling of Pax (--fdl_config, --fdl.NAME=VALUE, CONFIG=…) and AXLearn (--module, --config, …) →
// settings by MaxText's names, so that one path resolves all three. Pure: words in, settings out.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

enum class Dialect { kMaxText, kPax, kAxlearn };

// By the flags that only one of them has.
Dialect dialect_of(const std::vector<std::string>& words);

// A setting that a flag stands for; `flag` is the word that a person has typed, without its value.
struct FlagSetting {
  std::string key;
  std::string text;
  std::string flag;
};

struct Translation {
  std::vector<FlagSetting> settings;   // in their order: the last of a repeated key counts
  std::string config_path;             // a base.yml that was named among the flags; may be empty
  std::vector<std::string> overrides;  // MaxText's key=value, which win over flags
  std::vector<std::string> warnings;   // one sentence for each flag without effect
};

// Every word is used, warned about, or an error: InvalidArgument names the flag and the nearest known one, or the flag,
// its value and what would be right. `words` has no options of Muster's own.
absl::StatusOr<Translation> translate(const std::vector<std::string>& words);

}  // namespace muster::jobspec

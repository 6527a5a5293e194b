// A fixture that resolves command lines from users' scripts in the same steps as `muster run`.
#pragma once

#include <string>
#include <vector>

#include <absl/strings/str_split.h>

#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/launcher.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {

class PastedLines : public ConfigFiles {
 protected:
  static std::vector<std::string> words(absl::string_view text) {
    return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  }

  // Resolves the job of `muster run TEXT --ranks RANKS --nodes NODES`, without running it. 0: the
  // option is not given.
  static absl::StatusOr<ResolvedJob> pasted(absl::string_view text, int32_t ranks = 1,
                                            int32_t nodes = 0) {
    std::vector<std::string> all = words(text);
    if (const auto had = skip_launcher(all); !had.ok()) return had.status();
    auto translation = translate(all);
    if (!translation.ok()) return translation.status();
    auto config = load_config({shipped(), translation->settings, translation->overrides, {}});
    if (!config.ok()) return config.status();
    config->warnings.insert(config->warnings.end(), translation->warnings.begin(),
                            translation->warnings.end());
    LaunchOptions launch = options();
    if (ranks > 0) launch.ranks_per_node = ranks;
    if (nodes > 0) launch.nodes = nodes;
    return resolve_job(*config, launch);
  }
};

}  // namespace muster::jobspec

// Command lines of other programs, pasted behind `muster run`: `python3 MaxText/train.py …`, Pax's --fdl_config=…, AXLearn's
// --module=… . Their flags are hidden from CLI11 behind `--`; load_config() translates them.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

namespace muster::cli {

// `words` as CLI11 shall see them. Those with a `--` of the user's own are left alone: what follows it is another program.
absl::StatusOr<std::vector<std::string>> arrange_pasted(const CLI::App& app,
                                                        std::vector<std::string> words);

// The base.yml that we ship: configs/base.yml here, else in the tree or installation of this program. NotFound.
absl::StatusOr<std::string> shipped_base_yml();

// `path`, or ours in place of MaxText's own when that is not here.
std::string find_base_yml(const std::string& path, std::vector<std::string>& warnings);

}  // namespace muster::cli

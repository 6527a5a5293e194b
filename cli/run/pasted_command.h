// Command lines of other programs, pasted behind `muster run`: `python3 MaxText/train.py …`, Pax's
// --fdl_config=…, AXLearn's --module=… . Their flags are hidden from CLI11 behind `--`, and
// load_config() translates them. A program behind the user's own `--` runs unchanged, whatever its
// name.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

namespace muster::cli {

struct ArrangedCommand {
  std::vector<std::string> words;  // the words for CLI11
  // M_NAME=VALUE words in front of python, for this process's environment.
  std::vector<std::string> key_variables;
};

// Options of the command itself may stand anywhere before the user's `--`. InvalidArgument for the
// command line of an unknown program.
absl::StatusOr<ArrangedCommand> arrange_pasted_command(const CLI::App& app,
                                                       std::vector<std::string> words);

// Returns the base.yml that we ship: from this program's source tree or installation, else
// configs/base.yml here. NotFound when there is none.
absl::StatusOr<std::string> shipped_base_yml();

}  // namespace muster::cli

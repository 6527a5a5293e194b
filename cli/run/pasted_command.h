// Users paste command lines of other trainers after `muster run`: `python3 MaxText/train.py …`,
// Pax's --fdl_config=…, AXLearn's --module=… . This file moves the other trainer's flags behind
// `--`, where CLI11 does not parse them; load_config() translates them later. A program behind the
// user's own `--` runs unchanged, whatever its name.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

namespace muster::cli {

// A rearranged command line.
struct ArrangedCommand {
  std::vector<std::string> words;  // the words for CLI11
  // the M_NAME=VALUE words in front of python, to be set in this process's environment
  std::vector<std::string> key_variables;
};

// Rearranges `words`. Options of the command itself may stand anywhere before the user's `--`.
// Returns InvalidArgument for the command line of an unknown program.
absl::StatusOr<ArrangedCommand> arrange_pasted_command(const CLI::App& app,
                                                       std::vector<std::string> words);

// Returns the path of Muster's own base.yml: in this program's source tree or installation, else
// configs/base.yml in the working directory. Returns NotFound if there is none.
absl::StatusOr<std::string> shipped_base_yml();

}  // namespace muster::cli

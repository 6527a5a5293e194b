// Command lines of other programs, pasted behind `muster run`: `python3 MaxText/train.py …`, Pax's --fdl_config=…, AXLearn's
// --module=… . Their flags are hidden from CLI11 behind `--`; load_config() translates them. A program behind a `--` of the
// user's own is run as it is, whatever it is called.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

namespace muster::cli {

struct Arranged {
  std::vector<std::string> words;  // as CLI11 shall see them
  std::vector<std::string>
      key_variables;  // M_NAME=VALUE in front of python: for this process's environment
};

// Options of the command's own may stand anywhere in front of a `--` of the user's. InvalidArgument for the command line of
// another program.
absl::StatusOr<Arranged> arrange_pasted(const CLI::App& app, std::vector<std::string> words);

// The base.yml that we ship: in the tree or installation of this program, else configs/base.yml here. NotFound.
absl::StatusOr<std::string> shipped_base_yml();

}  // namespace muster::cli

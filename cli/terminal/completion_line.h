// The command line on which one presses Tab, as far as completion needs it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/coordinator_target.h"

namespace muster::cli {

// Kinds of the word before the cursor, by the values that a shell may offer.
enum class CompletedWord {
  kAny,      // an option, a command, a key or a file
  kFile,     // the value of an option or a key whose values are not known
  kJob,      // the number of a job
  kNode,     // the name of a node
  kKeyValue  // the value behind "key="
};

struct TypedLine {
  CompletedWord word = CompletedWord::kAny;
  std::string command;  // its name, without groups: "exclude"; "" before a command
  // Words before the cursor that are neither options nor their values.
  std::vector<std::string> arguments;
  std::string key;  // the key of a kKeyValue
  // Options with values, by name without dashes, and variables that the line sets in front of the
  // program, by the name of the option that each replaces.
  std::map<std::string, std::string> options;
};

// Parses the line up to the cursor as a shell does, without running commands. Returns nullopt if it
// has words that only the shell can expand: their number and values are not known. `app`: the
// declared commands; the results do not refer to it.
std::optional<TypedLine> parse_typed_line(const CLI::App& app, const std::string& line);

// Returns the coordinator that the line, the environment or the default names; nullopt if an option
// is invalid. Also returns nullopt if the line names another coordinator than the environment or
// the default and no token file: pressing Tab must not send a token to an address that is not yet
// confirmed with Enter.
std::optional<CoordinatorTarget> coordinator_of(const TypedLine& typed);

}  // namespace muster::cli

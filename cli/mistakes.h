// How mistakes on the command line of `muster` read: as every program's, and a key of the config given as an option leads
// to the key.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::cli {

// `app` is what failed to parse `words`. InvalidArgument says what is wrong and what would be right.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& words);

}  // namespace muster::cli

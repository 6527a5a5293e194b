// Error messages for the command line of `muster`, in Muster's usual form. If the user gives a
// config key as an option, the message names the key.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::cli {

// Returns InvalidArgument with the problem and the right form, for the `error` with which `app`
// failed to parse `words`.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& words);

}  // namespace muster::cli

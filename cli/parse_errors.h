// Error messages for the command line of `muster`. They have the usual form, and a config key given
// as an option leads to the key.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::cli {

// `app` is the app that failed to parse `words`. Returns InvalidArgument, which states the problem
// and the right form.
absl::Status explain(const CLI::App& app, const CLI::ParseError& error,
                     const std::vector<std::string>& words);

}  // namespace muster::cli

// Values of arguments, options and keys for the completion scripts.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::cli {

// A value with a description, which some shells show beside it; may be empty.
struct CompletionValue {
  std::string value;
  std::string description;
};

// The kind of the word before the cursor, as the scripts read it.
constexpr const char* kAnyWord = "any";      // it may also be an option, a command, a key or a file
constexpr const char* kFileWord = "file";    // nothing but a file
constexpr const char* kValueWord = "value";  // one of `values`

struct Completion {
  const char* kind = kAnyWord;
  std::vector<CompletionValue> values;
};

// Returns the completion of the end of `line`, the command line up to the cursor: jobs and nodes of
// the coordinator that the line or the environment names, and values of keys. There are no values
// if the coordinator does not answer within a second, and only values with plain characters,
// [A-Za-z0-9._-]: names come from elsewhere, and shells insert values.
Completion complete(const CLI::App& app, const std::string& line);

}  // namespace muster::cli

// Finds the rows of the flag table (flag_table.h) for the words of a Pax or AXLearn command line.
// Used by dialect.cc only.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/flag_table.h"

namespace muster::jobspec {

// A flag of the command line, and its row.
struct GivenFlag {
  const Flag* flag = nullptr;
  std::string shown;  // the flag as typed: "--fdl.MAX_STEPS"
  std::string value;
};

// Appends the flags in `words` to `given`, in their order. Stores key=value words and a FILE.yml in
// `out`. Returns InvalidArgument for an unknown flag, with the nearest known one, and for a flag
// without its value.
absl::Status scan_flags(Dialect dialect, const std::vector<std::string>& words,
                        std::vector<GivenFlag>& given, Translation& out);

// Does the same for `assignments`, the NAME=VALUE words of exported_words(); their origin is
// "environment NAME".
absl::Status scan_exported(const std::vector<std::string>& assignments,
                           std::vector<GivenFlag>& given, Translation& out);

}  // namespace muster::jobspec

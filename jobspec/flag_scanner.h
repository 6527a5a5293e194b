// Matches words of another program's command line with rows of the flag table. Used by dialect.cc
// only.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/dialect.h"
#include "jobspec/flag_table.h"

namespace muster::jobspec {

// One flag as typed, and its row.
struct GivenFlag {
  const Flag* flag = nullptr;
  std::string shown;  // "--fdl.MAX_STEPS"
  std::string value;
};

// Appends to `given` in the order of `words`; key=value words and a FILE.yml go into `out`.
// InvalidArgument for an unknown flag, with the nearest known one, and for a flag without its
// value.
absl::Status scan_flags(Dialect dialect, const std::vector<std::string>& words,
                        std::vector<GivenFlag>& given, Translation& out);

// Appends the exported NAME=VALUE of exported_words(), whose origin is "environment NAME".
absl::Status scan_exported(const std::vector<std::string>& assignments,
                           std::vector<GivenFlag>& given, Translation& out);

}  // namespace muster::jobspec

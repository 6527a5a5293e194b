// Words of a foreign command line → rows of the flag table, with their values. Only dialect.cc looks here.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/dialect.h"
#include "jobspec/flag_table.h"

namespace muster::jobspec {

// One flag as it was typed, and its row.
struct Given {
  const Flag* flag = nullptr;
  std::string shown;  // "--fdl.MAX_STEPS"
  std::string value;
};

// Appends to `given` in the order of `words`; key=value and a FILE.yml go into `out`. InvalidArgument for a flag that is
// unknown, with the nearest, and for one without its value.
absl::Status scan_flags(Dialect dialect, const std::vector<std::string>& words,
                        std::vector<Given>& given, Translation& out);

}  // namespace muster::jobspec

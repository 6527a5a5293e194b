// The results of a check by `muster doctor` or `muster admin doctor`.
#pragma once

#include <string>
#include <vector>

namespace muster::cli {

struct Finding {
  const char* check = "";  // "disk"
  bool ok = true;
  std::string text;    // the observed state
  std::string advice;  // the remedy; empty if ok
};

// Returns the findings as lines: "ok", or "PROBLEM" with the advice below.
std::string describe_findings(const std::vector<Finding>& findings);

// Prints the findings, as lines or as JSON, and returns the exit code: kFailure if one is a
// problem.
int print_findings(const std::vector<Finding>& findings, bool json);

}  // namespace muster::cli

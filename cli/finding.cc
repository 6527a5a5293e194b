#include "cli/finding.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::json out = {{"checks", nlohmann::json::array()}};
  for (const Finding& finding : findings) {
    nlohmann::json row = {{"check", finding.check}, {"ok", finding.ok}, {"text", finding.text}};
    if (!finding.advice.empty()) row["advice"] = finding.advice;
    out["checks"].push_back(std::move(row));
  }
  return out.dump(2) + "\n";
}

}  // namespace

std::string describe_findings(const std::vector<Finding>& findings) {
  std::string text;
  int problems = 0;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, finding.ok ? "ok       " : "PROBLEM  ", finding.check, ": ",
                    finding.text, "\n");
    if (finding.ok) continue;
    ++problems;
    absl::StrAppend(&text, "         → ", finding.advice, "\n");
  }
  absl::StrAppend(&text, problems == 0   ? "No problem was found.\n"
                         : problems == 1 ? "1 problem.\n"
                                         : absl::StrCat(problems, " problems.\n"));
  return text;
}

int print_findings(const std::vector<Finding>& findings, bool json) {
  const int printed = print_result(json ? findings_json(findings) : describe_findings(findings));
  const bool ok = std::ranges::all_of(findings, [](const Finding& finding) { return finding.ok; });
  return printed != 0 || ok ? printed : to_int(ExitCode::kFailure);
}

}  // namespace muster::cli

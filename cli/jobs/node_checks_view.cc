#include "cli/jobs/node_checks_view.h"

#include <algorithm>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include "cli/terminal/terminal.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using Names = std::vector<std::string>;

const char* outcome_name(v1::NodeOutcome outcome) {
  switch (outcome) {
    case v1::NODE_CHECKING:
      return "checking";
    case v1::NODE_PASSED:
      return "passed";
    case v1::NODE_FAILED:
      return "failed";
    case v1::NODE_SKIPPED:
      return "skipped";
    default:
      return "unknown";
  }
}

void add_names(const v1::DeepCheck& check, Names& names) {
  for (const v1::Measurement& one : check.measurements())
    if (std::ranges::find(names, one.name()) == names.end()) names.push_back(one.name());
}

// Appends "GEMM" and so on to the header.
void add_headers(const Names& names, std::vector<std::string>& header) {
  for (const std::string& name : names)
    header.push_back(absl::AsciiStrToUpper(absl::StrReplaceAll(shown(name), {{"_", " "}})));
}

void add_values(const v1::DeepCheck& check, const Names& names, std::vector<std::string>& row) {
  for (const std::string& name : names) {
    const auto found = std::ranges::find(check.measurements(), name, &v1::Measurement::name);
    row.push_back(found == check.measurements().end()
                      ? "-"
                      : absl::StrFormat("%.3g %s", found->value(), shown(found->unit())));
  }
}

nlohmann::json check_to_json(const v1::DeepCheck& check) {
  nlohmann::json out = {{"unix_ns", check.unix_ns()},
                        {"passed", check.passed()},
                        {"seconds", daemon::json_number(check.seconds())},
                        {"sentence", check.sentence()},
                        {"kind", check.kind()},
                        {"measurements", nlohmann::json::object()}};
  for (const v1::Measurement& one : check.measurements())
    out["measurements"][one.name()] = {{"value", daemon::json_number(one.value())},
                                       {"unit", one.unit()}};
  return out;
}

}  // namespace

std::string describe_sweep(const v1::NodeSweep& sweep) {
  Names names;
  for (const v1::SweptNode& node : sweep.nodes()) add_names(node.check(), names);
  Rows rows = {{"NODE", "CHECK"}};
  add_headers(names, rows[0]);
  rows[0].emplace_back("WHY");
  for (const v1::SweptNode& node : sweep.nodes()) {
    std::vector<std::string> row = {shown(node.worker()), outcome_name(node.outcome())};
    add_values(node.check(), names, row);
    row.push_back(shown(node.sentence()));
    rows.push_back(std::move(row));
  }
  std::string text = format_table(rows);
  const int more = sweep.node_count() - sweep.nodes_size();
  if (more > 0) absl::StrAppend(&text, "and ", more, " more nodes\n");
  for (const std::string& finding : sweep.findings()) absl::StrAppend(&text, shown(finding), "\n");
  absl::StrAppend(&text, "sweep ", sweep.id(), ": ", shown(sweep.stage()), "\n");
  return text;
}

std::string describe_node_checks(const v1::ListNodeChecksResponse& checks, int64_t now_unix_ns) {
  if (checks.checks().empty()) return "no deep check has been made\n";
  Names names;
  for (const v1::DeepCheck& check : checks.checks()) add_names(check, names);
  Rows rows = {{"AGE", "CHECK"}};
  add_headers(names, rows[0]);
  rows[0].insert(rows[0].end(), {"KIND", "WHY"});
  for (const v1::DeepCheck& check : checks.checks()) {
    const double age = static_cast<double>(now_unix_ns - check.unix_ns()) / 1e9;
    std::vector<std::string> row = {format_duration(std::max(0.0, age)),
                                    check.passed() ? "passed" : "failed"};
    add_values(check, names, row);
    row.insert(row.end(), {shown(check.kind()), shown(check.sentence())});
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

nlohmann::json sweep_to_json(const v1::NodeSweep& sweep) {
  nlohmann::json out = {{"id", sweep.id()},
                        {"running", sweep.running()},
                        {"started_unix_ns", sweep.started_unix_ns()},
                        {"ended_unix_ns", sweep.ended_unix_ns()},
                        {"scheduled", sweep.scheduled()},
                        {"stage", sweep.stage()},
                        {"node_count", sweep.node_count()},
                        {"nodes", nlohmann::json::array()},
                        {"findings", sweep.findings()}};
  for (const v1::SweptNode& node : sweep.nodes()) {
    nlohmann::json one = {{"node", node.worker()},
                          {"outcome", outcome_name(node.outcome())},
                          {"sentence", node.sentence()}};
    if (node.has_check()) one["check"] = check_to_json(node.check());
    out["nodes"].push_back(std::move(one));
  }
  return out;
}

nlohmann::json node_checks_to_json(const v1::ListNodeChecksResponse& checks) {
  nlohmann::json out = {{"checks", nlohmann::json::array()}};
  for (const v1::DeepCheck& check : checks.checks()) out["checks"].push_back(check_to_json(check));
  return out;
}

bool is_good(const v1::NodeSweep& sweep, const std::vector<std::string>& named) {
  const auto has_passed = [&](const std::string& name) {
    const auto found = std::ranges::find(sweep.nodes(), name, &v1::SweptNode::worker);
    // A shortened list leaves out nodes that passed.
    if (found == sweep.nodes().end()) return sweep.node_count() > sweep.nodes_size();
    return found->outcome() == v1::NODE_PASSED;
  };
  return sweep.findings().empty() && std::ranges::all_of(named, has_passed) &&
         std::ranges::none_of(sweep.nodes(), [](const v1::SweptNode& node) {
           return node.outcome() == v1::NODE_FAILED;
         });
}

}  // namespace muster::cli

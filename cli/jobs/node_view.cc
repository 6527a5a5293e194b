#include "cli/jobs/node_view.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

std::string duration_between(int64_t from_unix_ns, int64_t to_unix_ns) {
  return format_duration(std::max(0.0, static_cast<double>(to_unix_ns - from_unix_ns) / 1e9));
}

std::string state_of(const v1::WorkerInfo& worker) {
  if (worker.has_exclusion()) return "left out";
  if (!worker.connected()) return "away";
  if (worker.leaving()) return "leaving";
  return worker.check_due() ? "being checked" : "good";
}

// Returns ", drained in 29m"; "" without a planned drain. A coordinator of an earlier version sends
// the drain of excluded nodes only.
std::string drain_of(const v1::WorkerInfo& worker, int64_t now_unix_ns) {
  const int64_t at =
      worker.has_drain() ? worker.drain().unix_ns() : worker.exclusion().drain_unix_ns();
  return at == 0 ? "" : absl::StrCat(", drained in ", duration_between(now_unix_ns, at));
}

std::string rest_of(const v1::NodeExclusion& exclusion, int64_t now_unix_ns) {
  return exclusion.until_unix_ns() == 0
             ? "until admitted"
             : absl::StrCat("for ", duration_between(now_unix_ns, exclusion.until_unix_ns()));
}

std::string reason_of(const v1::WorkerInfo& worker) {
  const v1::NodeExclusion& exclusion = worker.exclusion();
  std::string text = absl::StrCat(exclusion.cause(), ": ", exclusion.reason());
  if (exclusion.times() > 1) absl::StrAppend(&text, " (", exclusion.times(), " times in a day)");
  return shown(text);
}

// Returns why the node is left out or has no GPUs; "" otherwise.
std::string why_of(const v1::WorkerInfo& worker) {
  if (worker.has_exclusion()) return reason_of(worker);
  if (worker.has_drain()) return shown(worker.drain().reason());
  if (worker.no_gpus_because().empty()) return "";
  return absl::StrCat("no GPUs: ", shown(worker.no_gpus_because()));
}

std::string check_of(const v1::WorkerInfo& worker, int64_t now_unix_ns) {
  if (!worker.has_last_check()) return "-";
  const v1::NodeCheck& check = worker.last_check();
  const std::string when = duration_between(check.unix_ns(), now_unix_ns);
  return check.passed() ? absl::StrCat("passed ", when, " ago")
                        : absl::StrCat("failed ", when, " ago: ", shown(check.sentence()));
}

}  // namespace

std::string names_of_gpus(const v1::WorkerInfo& worker) {
  if (worker.gpus().empty()) return "-";
  std::set<std::string> names;
  for (const v1::Gpu& gpu : worker.gpus()) names.insert(shown(gpu.name()));
  return absl::StrJoin(names, ", ");
}

std::string describe_gpus(const v1::WorkerInfo& worker) {
  if (worker.gpus().empty()) return "-";
  return absl::StrCat(worker.gpus_used(), " of ", worker.gpus_size(), " used, ",
                      names_of_gpus(worker));
}

std::string describe_node(const v1::WorkerInfo& worker, int64_t now_unix_ns) {
  std::string text = absl::StrCat(shown(worker.name()), " is ", state_of(worker));
  if (worker.has_exclusion())
    absl::StrAppend(&text, " ", rest_of(worker.exclusion(), now_unix_ns),
                    drain_of(worker, now_unix_ns), ": ", reason_of(worker));
  else if (worker.has_drain())
    absl::StrAppend(&text, drain_of(worker, now_unix_ns), ": ", shown(worker.drain().reason()),
                    "; it gets new ranks until an hour before");
  if (worker.has_last_check())
    absl::StrAppend(&text, "; its check ", check_of(worker, now_unix_ns));
  return text;
}

std::string describe_node_list(const v1::ListWorkersResponse& workers, int64_t now_unix_ns) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "HOST", "SLOTS", "USED", "GPUS", "STATE", "LAST CHECK", "WHY"}};
  const bool has_domains = std::ranges::any_of(
      workers.workers(), [](const v1::WorkerInfo& worker) { return !worker.domain().empty(); });
  if (has_domains) rows[0].insert(rows[0].begin() + 2, "DOMAIN");
  for (const v1::WorkerInfo& worker : workers.workers()) {
    const bool here = !worker.host().empty();
    std::vector<std::string> row = {
        worker.name(),
        here ? worker.host() : "-",
        here ? absl::StrCat(worker.slots()) : "-",
        here ? absl::StrCat(worker.slots_used()) : "-",
        describe_gpus(worker),
        worker.has_exclusion()
            ? absl::StrCat(state_of(worker), " ", rest_of(worker.exclusion(), now_unix_ns),
                           drain_of(worker, now_unix_ns))
            : absl::StrCat(state_of(worker), drain_of(worker, now_unix_ns)),
        check_of(worker, now_unix_ns),
        why_of(worker)};
    if (has_domains)
      row.insert(row.begin() + 2, worker.domain().empty() ? "-" : shown(worker.domain()));
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

}  // namespace muster::cli

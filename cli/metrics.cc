// muster metrics: prints every metric that the daemons export.
#include <unistd.h>

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "daemon/metric_table.h"

namespace muster::cli {
namespace {

struct MetricsOptions {
  bool json = false;
  bool markdown = false;
};

std::string_view type_of(const daemon::Metric& metric) {
  return daemon::kMetricTypeNames[static_cast<size_t>(metric.type)];
}

std::string_view source_of(const daemon::Metric& metric) {
  return daemon::kMetricSourceNames[static_cast<size_t>(metric.source)];
}

std::vector<std::string> labels_of(const daemon::Metric& metric) {
  return absl::StrSplit(av(metric.labels), ' ', absl::SkipEmpty());
}

std::string as_json() {
  nlohmann::json rows = nlohmann::json::array();
  for (const daemon::Metric& metric : daemon::kMetrics) {
    rows.push_back({{"name", metric.name},
                    {"type", type_of(metric)},
                    {"source", source_of(metric)},
                    {"labels", labels_of(metric)},
                    {"help", metric.help}});
  }
  return nlohmann::json({{"metrics", rows}}).dump() + "\n";
}

std::string as_text() {
  std::string text;
  for (const daemon::Metric& metric : daemon::kMetrics) {
    const std::string labels = absl::StrJoin(labels_of(metric), ", ");
    absl::StrAppend(&text, av(metric.name), labels.empty() ? "" : absl::StrCat("{", labels, "}"),
                    "  ", av(type_of(metric)), " of the ", av(source_of(metric)), "\n    ",
                    av(metric.help), "\n");
  }
  return text;
}

constexpr std::string_view kPageHead =
    "# Metrics\n"
    "\n"
    "`muster metrics --markdown` makes this page from `daemon/metric_table.h`, the table from "
    "which the programs create their\n"
    "metrics. Tests compare the page, the table and the metrics of a real run. How to scrape, "
    "rules, alerts and dashboards:\n"
    "[monitoring.md](monitoring.md).\n";

constexpr std::string_view kCoordinatorHead =
    "\n"
    "## Coordinator\n"
    "\n"
    "Address: `http://127.0.0.1:7071/metrics`, or that of `--http`. The number of series is "
    "limited; totals count all jobs,\n"
    "workers and incidents. These have series of their own:\n"
    "\n"
    "- 96 jobs (`--job-series`), until five minutes after the job's end, and the 16 slowest ranks "
    "of each;\n"
    "- 64 workers, spread evenly over the fleet (`--worker-series`), and the 64 workers that have "
    "been silent for longest;\n"
    "- the 512 newest incidents.\n";

constexpr std::string_view kWorkerHead =
    "\n"
    "## Worker\n"
    "\n"
    "Address: that of muster-worker's `--http`. 64 ranks of a job, spread evenly over all of its "
    "nodes, have series\n"
    "`muster_rank_…` of their own (`--rank-series`). The metrics `muster_worker_…` include all "
    "ranks of the worker.\n"
    "Training metrics have no series before the first step.\n";

std::string as_markdown() {
  std::string text(kPageHead);
  for (const auto& [source, head] :
       {std::pair(daemon::MetricSource::kCoordinator, kCoordinatorHead),
        std::pair(daemon::MetricSource::kWorker, kWorkerHead)}) {
    absl::StrAppend(&text, av(head), "\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for (const daemon::Metric& metric : daemon::kMetrics) {
      if (metric.source != source) continue;
      absl::StrAppend(&text, "| `", av(metric.name), "` | ", av(type_of(metric)), " | ",
                      absl::StrJoin(labels_of(metric), ", "), " | ", av(metric.help), " |\n");
    }
  }
  return text;
}

int metrics(const MetricsOptions& options) {
  return print_result(options.json ? as_json() : options.markdown ? as_markdown() : as_text());
}

}  // namespace

void declare_metrics(CLI::App& app, Action& action) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* command =
      app.add_subcommand("metrics", "List the Prometheus metrics of coordinator and workers");
  command->add_flag("--markdown", options->markdown, "As the page docs/metrics.md");
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster metrics\n"
      "  muster metrics --json | jq -r '.metrics[].name'\n"
      "  muster metrics --markdown > docs/metrics.md");
  on_call(*command, action, options, metrics);
}

}  // namespace muster::cli

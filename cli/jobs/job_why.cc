#include "cli/jobs/job_why.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "cli/jobs/node_view.h"
#include "cli/terminal/terminal.h"
#include "common/job/gpu.h"
#include "common/job/node_labels.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"

namespace muster::cli {
namespace {

constexpr size_t kRowsMax = 50;

std::string free_of(int32_t all, int32_t used) {
  return absl::StrCat(std::max(all - used, 0), " of ", all);
}

struct Domain {
  int64_t nodes = 0;
  int64_t able = 0;  // can take ranks now
};

std::map<std::string, Domain> domains_of(const JobNeeds& needs,
                                         const v1::ListWorkersResponse& workers) {
  std::map<std::string, Domain> domains;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (worker.domain().empty()) continue;
    Domain& domain = domains[worker.domain()];
    ++domain.nodes;
    domain.able += why_not(worker, needs).empty() ? 1 : 0;
  }
  return domains;
}

// Lists the domains with the most nodes that can take ranks first.
std::string domains_text(const JobNeeds& needs, const v1::ListWorkersResponse& workers) {
  const std::map<std::string, Domain> domains = domains_of(needs, workers);
  if (domains.empty()) return "";
  std::vector<std::pair<std::string, Domain>> rows(domains.begin(), domains.end());
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const auto& row) { return row.second.able; });
  std::string text = "workers that can take its ranks now, by domain:";
  constexpr size_t kDomainsMax = 10;
  for (size_t i = 0; i < std::min(rows.size(), kDomainsMax); ++i)
    absl::StrAppend(&text, i == 0 ? " " : ", ", shown(rows[i].first), " ", rows[i].second.able,
                    " of ", rows[i].second.nodes);
  if (rows.size() > kDomainsMax)
    absl::StrAppend(&text, ", and ", rows.size() - kDomainsMax, " domains with at most ",
                    rows[kDomainsMax].second.able);
  if (needs.segment_nodes > 1) {
    absl::StrAppend(&text, "\neach ", needs.segment_nodes,
                    " consecutive nodes share a domain if possible");
    if (rows.front().second.able < needs.segment_nodes)
      absl::StrAppend(&text, ": no domain has them");
  }
  return absl::StrCat(text, "\n");
}

// Lists for each condition of the selector how many workers fulfil it, and how many of these can
// take ranks now.
std::string conditions_text(const JobNeeds& needs, const v1::ListWorkersResponse& workers) {
  std::string text;
  for (const std::string& condition : needs.selector) {
    uint64_t all = 0, able = 0;
    for (const v1::WorkerInfo& worker : workers.workers()) {
      const std::map<std::string, std::string> labels(worker.labels().begin(),
                                                      worker.labels().end());
      if (!holds(condition, labels)) continue;
      ++all;
      able += why_not(worker, needs).empty() ? 1 : 0;
    }
    absl::StrAppend(&text, counted(all, "worker"), all == 1 ? " has " : " have ", condition,
                    ", and ", able, " of them can take its ranks now\n");
  }
  return text;
}

std::string unmet_needs_text(const JobNeeds& needs) {
  std::string text = absl::StrCat(
      "needs ", counted(static_cast<uint64_t>(needs.nodes), "node"),
      needs.fewest_nodes < needs.nodes ? absl::StrCat(" (or at least ", needs.fewest_nodes, ")")
                                       : "",
      " with ", counted(static_cast<uint64_t>(needs.slots), "free slot"));
  if (needs.gpus_per_rank > 0) {
    absl::StrAppend(&text, " and ",
                    counted(static_cast<uint64_t>(needs.gpus_per_rank) * needs.slots, "free GPU"));
  } else if (needs.gpus_per_rank == kGpusOfSlot) {
    absl::StrAppend(&text, " and the slots' share of free GPUs");
  }
  if (needs.nodes > 1) absl::StrAppend(&text, " each");
  if (needs.gpu_bytes > 0)
    absl::StrAppend(&text, ", and ", with_commas(static_cast<int64_t>(needs.gpu_bytes >> 20)),
                    " MiB of each GPU's memory by the plan");
  return text;
}

}  // namespace

JobNeeds needs_of(const v1::JobSpec& spec, bool has_started, uint64_t gpu_bytes) {
  return {.nodes = spec.nodes(),
          .fewest_nodes = has_started && spec.min_nodes() > 0 ? spec.min_nodes() : spec.nodes(),
          .segment_nodes = spec.segment_nodes(),
          .slots = spec.ranks_per_node(),
          .gpus_per_rank = spec.gpus_per_rank(),
          .gpu_bytes = gpu_bytes,
          .selector = {spec.node_selector().begin(), spec.node_selector().end()},
          .tolerations = {spec.tolerations().begin(), spec.tolerations().end()}};
}

std::string why_not(const v1::WorkerInfo& worker, const JobNeeds& needs) {
  if (worker.has_exclusion())
    return absl::StrCat("left out: ", worker.exclusion().cause(), ": ",
                        worker.exclusion().reason());
  if (!worker.connected()) return "away";
  if (worker.leaving()) return "leaving";
  if (worker.check_due()) return "must pass a node check first";
  const NodeLabels labels{.labels = {worker.labels().begin(), worker.labels().end()},
                          .taints = {worker.taints().begin(), worker.taints().end()}};
  if (std::string why = why_unsuitable(labels, needs.selector, needs.tolerations); !why.empty())
    return why;
  if (worker.slots() < needs.slots)
    return absl::StrCat("has only ", counted(static_cast<uint64_t>(worker.slots()), "slot"));
  const int32_t gpus =
      needs.slots * gpus_of_rank(needs.gpus_per_rank, worker.gpus_size(), worker.slots());
  if (worker.gpus_size() < gpus) {
    if (worker.gpus_size() == 0 && !worker.no_gpus_because().empty())
      return absl::StrCat("no GPUs: ", worker.no_gpus_because());
    return absl::StrCat("has only ", counted(static_cast<uint64_t>(worker.gpus_size()), "GPU"));
  }
  if (worker.slots() - worker.slots_used() < needs.slots)
    return absl::StrCat(free_of(worker.slots(), worker.slots_used()), " slots are free");
  if (worker.gpus_size() - worker.gpus_used() < gpus)
    return absl::StrCat(free_of(worker.gpus_size(), worker.gpus_used()), " GPUs are free");
  uint64_t largest = 0;
  for (const v1::Gpu& gpu : worker.gpus()) largest = std::max(largest, gpu.memory_bytes());
  if (largest > 0 && largest < needs.gpu_bytes)
    return absl::StrCat("its GPUs have only ", with_commas(static_cast<int64_t>(largest >> 20)),
                        " MiB");
  return "";
}

std::string describe_why(const JobNeeds& needs, const v1::ListWorkersResponse& workers) {
  std::vector<std::pair<std::string, const v1::WorkerInfo*>> verdicts;
  for (const v1::WorkerInfo& worker : workers.workers())
    verdicts.emplace_back(why_not(worker, needs), &worker);
  const auto able =
      std::ranges::stable_partition(verdicts, [](const auto& one) { return !one.first.empty(); });
  std::string text = absl::StrCat(unmet_needs_text(needs), "\n");
  if (verdicts.empty()) return absl::StrCat(text, "no worker has registered\n");
  absl::StrAppend(&text, "workers that can take its ranks now: ", able.size(), " of ",
                  verdicts.size(), "\n", conditions_text(needs, workers),
                  domains_text(needs, workers), "\n");
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "FREE SLOTS", "FREE GPUS", "GPUS", "CANNOT TAKE RANKS BECAUSE"}};
  for (size_t i = 0; i < std::min(verdicts.size(), kRowsMax); ++i) {
    const v1::WorkerInfo& worker = *verdicts[i].second;
    rows.push_back({worker.name(), free_of(worker.slots(), worker.slots_used()),
                    worker.gpus_size() == 0 ? "-" : free_of(worker.gpus_size(), worker.gpus_used()),
                    names_of_gpus(worker), verdicts[i].first.empty() ? "-" : verdicts[i].first});
  }
  absl::StrAppend(&text, format_table(rows));
  if (verdicts.size() > kRowsMax)
    absl::StrAppend(&text, "… and ", verdicts.size() - kRowsMax,
                    " more (--json lists all workers)\n");
  return text;
}

nlohmann::json why_to_json(const JobNeeds& needs, const v1::ListWorkersResponse& workers) {
  nlohmann::json out = {{"nodes", needs.nodes},
                        {"min_nodes", needs.fewest_nodes},
                        {"slots_per_node", needs.slots},
                        {"gpus_per_rank", needs.gpus_per_rank},
                        {"gpu_memory_bytes", needs.gpu_bytes},
                        {"segment_nodes", needs.segment_nodes},
                        {"node_selector", needs.selector},
                        {"tolerations", needs.tolerations},
                        {"domains", nlohmann::json::array()},
                        {"workers", nlohmann::json::array()}};
  for (const auto& [name, domain] : domains_of(needs, workers))
    out["domains"].push_back({{"name", name}, {"nodes", domain.nodes}, {"able", domain.able}});
  for (const v1::WorkerInfo& worker : workers.workers())
    out["workers"].push_back({{"name", worker.name()}, {"why_not", why_not(worker, needs)}});
  return out;
}

}  // namespace muster::cli

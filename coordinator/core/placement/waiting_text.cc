#include "coordinator/core/placement/waiting_text.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "coordinator/core/records/list_text.h"

namespace muster::coordinator {
namespace {

std::string gpus_text(const JobSpec& spec, bool missing) {
  if (spec.gpus_per_rank == kGpusOfSlot && missing)
    return spec.ranks_per_node == 1 ? " and its share of free GPUs"
                                    : " and their share of free GPUs";
  if (spec.gpus_per_rank <= 0) return "";
  const int32_t gpus = spec.gpus_per_rank * spec.ranks_per_node;
  return absl::StrCat(" and ", gpus, gpus == 1 ? " free GPU" : " free GPUs");
}

}  // namespace

std::string need_text(const JobSpec& spec, int32_t fewest, bool gpus_missing) {
  return absl::StrCat(
      spec.nodes, spec.nodes == 1 ? " worker" : " workers",
      fewest < spec.nodes ? absl::StrCat(", or at least ", fewest, ",") : std::string(), " with ",
      spec.ranks_per_node, spec.ranks_per_node == 1 ? " free slot" : " free slots",
      gpus_text(spec, gpus_missing), spec.nodes == 1 ? "" : " each",
      spec.node_selector.empty() ? ""
                                 : absl::StrCat(", ", absl::StrJoin(spec.node_selector, ", ")));
}

std::string fitting_text(const JobSpec& spec, PlacementRequest request,
                         const std::vector<Host>& hosts) {
  int32_t largest = 0;
  for (const Host& host : hosts) largest = std::max(largest, host.slots);
  if (largest == 0 || largest >= spec.ranks_per_node) return "";
  const int32_t ranks = spec.nodes * spec.ranks_per_node;
  std::string shape;
  for (int32_t each = largest; each > 0 && shape.empty(); --each) {
    request.ranks_per_node = each;
    const auto fits = [&](const Host& host) { return request.would_have_room(host); };
    if (ranks % each == 0 && std::ranges::count_if(hosts, fits) >= ranks / each)
      shape = absl::StrCat(": --nodes ", ranks / each, " --ranks-per-node ", each);
  }
  return absl::StrCat(" (the largest has ", largest, largest == 1 ? " slot" : " slots", shape, ")");
}

std::string passed_over_text(const std::vector<std::string>& workers, const char* why) {
  if (workers.empty()) return "";
  return absl::StrCat(" (", list_text(workers), workers.size() == 1 ? " is " : " are ", why, ")");
}

std::string held_text(size_t count, const WorkerName& awaited, Duration time) {
  if (awaited.value().empty() || count == 0) return "";
  return absl::StrCat("; ", count == 1 ? "one node is" : absl::StrCat(count, " nodes are"),
                      " reserved for it, for up to ", to_seconds(time),
                      " s after its last attempt, while ", awaited.value(), " is away");
}

std::string replaced_text(const std::vector<WorkerName>& before,
                          const std::vector<WorkerName>& now) {
  std::vector<std::string> changes;
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (before[i] != now[i])
      changes.push_back(absl::StrCat(now[i].value(), " in place of ", before[i].value()));
  }
  return list_text(changes);
}

}  // namespace muster::coordinator

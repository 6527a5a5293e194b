// Assignment of GPUs to launches. Two launches that are not superseded never share a GPU; a rank of
// a superseded attempt keeps its GPUs until it is reaped.
#include <algorithm>
#include <set>

#include <absl/strings/str_cat.h>

#include "worker/core/core.h"

namespace muster::worker {

// Ended ranks need no update; ranks on a GPU that has failed end by themselves and report the
// reason.
void Core::on(const GpusChanged& event, Instant, ActionList&) { gpu_problems_ = event.problems; }

int32_t Core::gpus_used() const {
  if (options_.gpus.empty()) return 0;
  std::set<int32_t> used;
  for (const auto& [key, rank] : ranks_) {
    const std::vector<int32_t> own = rank.launch->gpus_of(rank.local_rank);
    used.insert(own.begin(), own.end());
  }
  return static_cast<int32_t>(used.size());
}

// Fills launch.gpus. Returns the reason why the launch cannot run here, or "". Prefers free GPUs,
// then those that ranks of a superseded attempt still hold.
std::string Core::choose_gpus(Launch& launch, ExitCause& cause) const {
  const int32_t each =
      gpus_of_rank(launch.spec.gpus_per_rank, std::ssize(options_.gpus), options_.slots);
  if (each <= 0) return "";
  std::set<int32_t> taken;
  std::set<int32_t> dying;
  for (const auto& [key, rank] : ranks_) {
    std::set<int32_t>& those = is_superseded(key) ? dying : taken;
    const std::vector<int32_t> own = rank.launch->gpus_of(rank.local_rank);
    those.insert(own.begin(), own.end());
  }
  std::vector<int32_t> choices;
  std::string problem;
  for (int32_t gpu = 0; gpu < std::ssize(options_.gpus); ++gpu) {
    if (taken.contains(gpu)) continue;
    const bool is_bad =
        gpu < std::ssize(gpu_problems_) && !gpu_problems_[static_cast<size_t>(gpu)].empty();
    if (is_bad) {
      problem = absl::StrCat("; ", gpu_problems_[static_cast<size_t>(gpu)]);
    } else {
      choices.push_back(gpu);
    }
  }
  std::ranges::stable_sort(choices, {}, [&](int32_t gpu) { return dying.contains(gpu); });
  const int64_t needed = int64_t{each} * launch.spec.ranks_per_node;
  if (needed > std::ssize(choices)) {
    if (!problem.empty()) cause = ExitCause::kGpuFault;
    return absl::StrCat("the launch needs ", needed, needed == 1 ? " GPU" : " GPUs", " and worker ",
                        options_.name.value(), " has ", choices.size(), " of ",
                        options_.gpus.size(), " free and good", problem);
  }
  choices.resize(static_cast<size_t>(needed));
  std::ranges::sort(choices);  // a rank's GPUs are neighbours, and near each other
  for (int32_t i = 0; i < each; ++i)
    for (int32_t rank = 0; rank < launch.spec.ranks_per_node; ++rank)
      launch.gpus.push_back(choices[static_cast<size_t>(rank * each + i)]);
  return "";
}

// Returns whether no rank of another launch still uses the launch's GPUs.
bool Core::has_its_gpus(const Launch& launch) const {
  return launch.gpus.empty() || std::ranges::none_of(ranks_, [&](const auto& entry) {
           const RankState& rank = entry.second;
           if (rank.launch.get() == &launch || rank.life == Life::kWaiting) return false;
           return std::ranges::any_of(rank.launch->gpus_of(rank.local_rank), [&](int32_t gpu) {
             return std::ranges::find(launch.gpus, gpu) != launch.gpus.end();
           });
         });
}

}  // namespace muster::worker

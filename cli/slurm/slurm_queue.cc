#include "cli/slurm/slurm_queue.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "cli/slurm/slurm_job.h"
#include "common/job/gpu.h"
#include "common/job/limits.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

// Reasons from man squeue that do not resolve by themselves.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLasting = {{
    {"PartitionNodeLimit",
     "more nodes than the partition lets one job have, or nodes that are down or drained"},
    {"PartitionConfig", "more than the partition lets one job have"},
    {"PartitionTimeLimit", "a longer time limit than the partition has"},
    {"PartitionDown", "the partition is closed"},
    {"PartitionInactive", "the partition is closed"},
    {"BadConstraints", "no nodes meet its constraints"},
}};

// GPUs of one type in a node's generic resources.
struct GpuResource {
  std::string type;  // empty: the administrator gave none
  int32_t count = 0;
};

// Returns the GPUs in generic resources: "gpu:a100:4(S:0),gpu:2" has 4 of type a100 and 2 without a
// type.
std::vector<GpuResource> gpu_resources(absl::string_view gres) {
  constexpr auto kMost = static_cast<int32_t>(kGpusPerNodeMax);
  std::vector<GpuResource> gpus;
  int depth = 0;
  std::string plain;  // without the parts in parentheses, which may contain commas
  for (const char c : gres) {
    depth += c == '(' ? 1 : 0;
    if (depth == 0) plain.push_back(c);
    depth -= c == ')' ? 1 : 0;
  }
  for (const absl::string_view resource : absl::StrSplit(plain, ',')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(resource, ':');
    int32_t count = 0;
    if (fields.size() < 2 || fields[0] != "gpu" || !absl::SimpleAtoi(fields.back(), &count))
      continue;
    gpus.push_back({.type = fields.size() > 2 ? std::string(fields[1]) : "",
                    .count = std::clamp(count, 0, kMost)});
  }
  return gpus;
}

// Nodes of a partition with the same generic resources.
struct NodesOfPartition {
  int32_t nodes = 0;
  std::vector<GpuResource> gpus;
};

// Returns the nodes of the partitions `named` in sinfo's output.
std::vector<NodesOfPartition> nodes_of_partitions(std::string_view text, std::string_view named) {
  const std::vector<std::string> names = absl::StrSplit(av(named), ',', absl::SkipEmpty());
  std::vector<NodesOfPartition> found;
  for (const absl::string_view line : absl::StrSplit(av(text), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
    int32_t nodes = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &nodes)) continue;
    absl::string_view name = fields[0];
    const bool is_default = absl::ConsumeSuffix(&name, "*");
    const bool is_selected =
        names.empty() ? is_default : std::ranges::find(names, name) != names.end();
    if (is_selected) found.push_back({std::clamp(nodes, 0, kNodesMax), gpu_resources(fields[2])});
  }
  return found;
}

}  // namespace

std::vector<SlurmPartition> parse_slurm_partitions(std::string_view text) {
  std::vector<SlurmPartition> partitions;
  for (const absl::string_view line : absl::StrSplit(av(text), '\n')) {
    SlurmPartition partition{.name = slurm_field(sv(line), "PartitionName"),
                             .is_default = slurm_field(sv(line), "Default") == "YES"};
    const bool has_nodes = absl::SimpleAtoi(slurm_field(sv(line), "TotalNodes"), &partition.nodes);
    if (!partition.name.empty() && has_nodes) partitions.push_back(std::move(partition));
  }
  return partitions;
}

std::string too_many_nodes(const std::vector<SlurmPartition>& partitions, std::string_view named,
                           int32_t nodes) {
  const std::vector<std::string> names = absl::StrSplit(av(named), ',', absl::SkipEmpty());
  const SlurmPartition* largest = nullptr;
  for (const SlurmPartition& partition : partitions) {
    const bool is_selected = names.empty()
                                 ? partition.is_default
                                 : std::ranges::find(names, partition.name) != names.end();
    if (!is_selected) continue;
    if (partition.nodes >= nodes) return "";
    if (largest == nullptr || partition.nodes > largest->nodes) largest = &partition;
  }
  if (largest == nullptr) return "";
  return absl::StrCat("the job needs ", nodes, " nodes, but partition ", largest->name, " has ",
                      largest->nodes);
}

std::vector<int32_t> parse_slurm_gpus(std::string_view text, std::string_view named) {
  constexpr int64_t kMost = kGpusPerNodeMax;
  std::vector<int32_t> gpus;
  for (const NodesOfPartition& part : nodes_of_partitions(text, named)) {
    int64_t sum = 0;
    for (const GpuResource& resource : part.gpus) sum += resource.count;
    gpus.insert(gpus.end(), part.nodes, static_cast<int32_t>(std::min(sum, kMost)));
  }
  return gpus;
}

std::vector<std::string> parse_slurm_gpu_types(std::string_view text, std::string_view named) {
  std::set<std::string> types;
  for (const NodesOfPartition& part : nodes_of_partitions(text, named))
    for (const GpuResource& resource : part.gpus)
      if (part.nodes > 0 && resource.count > 0) types.insert(resource.type);
  return {types.begin(), types.end()};
}

std::set<std::string> started_jobs(std::string_view text) {
  std::set<std::string> jobs;
  for (const absl::string_view line : absl::StrSplit(av(text), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 2 || words[0] == "PENDING") continue;
    jobs.insert(words.begin() + 1, words.end());
  }
  return jobs;
}

std::string waiting_text(std::string_view reason) {
  const std::string_view word = sv(absl::StripAsciiWhitespace(av(reason)));
  if (word.empty() || word == "None") return "";
  for (const auto& [name, why] : kLasting) {
    if (word == name)
      return absl::StrCat("it cannot start until something is changed (", av(word), ": ", av(why),
                          ")");
  }
  return absl::StrCat("it waits (", av(word), ")");
}

}  // namespace muster::cli

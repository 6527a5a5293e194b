#include "cli/slurm/slurm_job.h"

#include <algorithm>
#include <array>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

std::string value_of(const Variables& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::optional<int32_t> count_of(const Variables& environment, const char* name) {
  int32_t count = 0;
  if (absl::SimpleAtoi(value_of(environment, name), &count) && count > 0) return count;
  return std::nullopt;
}

// Parses "1-02:03:04" or "02:03:04"; nullopt for UNLIMITED and the like.
std::optional<int64_t> seconds_of(const std::string& text) {
  const size_t dash = text.find('-');
  int64_t seconds = 0;
  if (dash != std::string::npos && !absl::SimpleAtoi(text.substr(0, dash), &seconds))
    return std::nullopt;
  const std::vector<std::string> parts =
      absl::StrSplit(text.substr(dash == std::string::npos ? 0 : dash + 1), ':');
  constexpr std::array<int64_t, 3> kUnits = {24, 60, 60};  // parts per unit before it
  if (parts.size() != kUnits.size()) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(parts[i], &number)) return std::nullopt;
    seconds = seconds * kUnits.at(i) + number;
  }
  return seconds;
}

// False for "None", "Unknown" and "N/A", which scontrol writes for an unset time.
bool is_time(const std::string& text) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text.front()));
}

}  // namespace

std::string slurm_field(std::string_view line, std::string_view name) {
  const std::string wanted = absl::StrCat(av(name), "=");
  size_t at = line.find(wanted);
  while (at != std::string_view::npos && at > 0 && line[at - 1] != ' ')
    at = line.find(wanted, at + 1);
  if (at == std::string_view::npos) return "";
  const std::string_view value = line.substr(at + wanted.size());
  return std::string(value.substr(0, value.find_first_of(" \n")));
}

absl::StatusOr<SlurmJob> slurm_job(const Variables& environment) {
  SlurmJob job;
  job.id = value_of(environment, "SLURM_JOB_ID");
  const auto nodes = count_of(environment, "SLURM_JOB_NUM_NODES");
  if (job.id.empty() || !nodes) {
    return absl::FailedPreconditionError(
        "not in a Slurm job: SLURM_JOB_ID and SLURM_JOB_NUM_NODES are not set; start it with "
        "sbatch (muster slurm submit …), or train on this machine with muster run");
  }
  const std::string array = value_of(environment, "SLURM_ARRAY_JOB_ID");
  const std::string task = value_of(environment, "SLURM_ARRAY_TASK_ID");
  if (!array.empty() && !task.empty()) {
    job.array = array;
    job.id = absl::StrCat(array, "_", task);
    job.array_tasks = count_of(environment, "SLURM_ARRAY_TASK_COUNT").value_or(1);
  }
  job.node_count = *nodes;
  job.name = value_of(environment, "SLURM_JOB_NAME");
  job.cluster = value_of(environment, "SLURM_CLUSTER_NAME");
  job.node = value_of(environment, "SLURMD_NODENAME");
  job.nodes = value_of(environment, "SLURM_JOB_NODELIST");
  job.reservation = value_of(environment, "SLURM_JOB_RESERVATION");
  job.restarts = count_of(environment, "SLURM_RESTART_COUNT").value_or(0);
  const auto tasks = count_of(environment, "SLURM_NTASKS_PER_NODE");
  job.ranks_per_node = tasks ? tasks : count_of(environment, "SLURM_GPUS_ON_NODE");
  return job;
}

std::string run_name_of(const SlurmJob& job) {
  std::string name = absl::StrCat(job.name.empty() ? "run" : job.name, "-", job.id);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_';
      },
      '-');
  return name;
}

std::string slurm_cluster(const SlurmJob& job) {
  return job.cluster.empty() ? "slurm" : job.cluster;
}

std::string scrape_cluster(const SlurmJob& job, bool is_chain) {
  return absl::StrCat(slurm_cluster(job), "-", is_chain ? job.array : job.id);
}

std::string switches_of(const Variables& environment) {
  const std::string address = value_of(environment, "SLURM_TOPOLOGY_ADDR");
  const size_t dot = address.rfind('.');
  // Without topology.conf the address is the node's name alone, which may contain dots.
  if (!absl::StartsWith(value_of(environment, "SLURM_TOPOLOGY_ADDR_PATTERN"), "switch.") ||
      dot == std::string::npos)
    return "";
  return address.substr(0, dot);
}

std::string domain_of(const Variables& environment) {
  const std::string address = value_of(environment, "SLURM_TOPOLOGY_ADDR");
  if (value_of(environment, "SLURM_TOPOLOGY_ADDR_PATTERN") != "block.node") return "";
  return address.substr(0, std::min(address.find('.'), address.size()));
}

std::string SlurmNode::trouble() const {
  for (const absl::string_view part : absl::StrSplit(state, '+')) {
    // "DOWN*": the node does not respond.
    const absl::string_view word = absl::StripSuffix(part, "*");
    if (word == "DOWN" || word == "DRAIN" || word == "DRAINING" || word == "DRAINED" ||
        word == "FAIL" || word == "FAILING" || word == "POWERED_DOWN" || word == "POWERING_DOWN")
      return reason.empty() ? absl::StrCat("Slurm: ", state)
                            : absl::StrCat("Slurm: ", state, ", ", reason);
  }
  return "";
}

std::vector<SlurmNode> parse_slurm_nodes(std::string_view text) {
  std::vector<SlurmNode> nodes;
  for (const absl::string_view line : absl::StrSplit(av(text), '\n')) {
    SlurmNode node{slurm_field(sv(line), "NodeName"), slurm_field(sv(line), "NodeAddr"),
                   slurm_field(sv(line), "State"), ""};
    if (node.name.empty()) continue;
    if (const size_t at = line.find(" Reason="); at != absl::string_view::npos)
      node.reason = std::string(absl::StripAsciiWhitespace(line.substr(at + 8)));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

SlurmJobState parse_slurm_job(std::string_view text) {
  int32_t restarts = -1;
  if (!absl::SimpleAtoi(slurm_field(text, "Restarts"), &restarts)) restarts = -1;
  return {slurm_field(text, "JobState"),
          seconds_of(slurm_field(text, "RunTime")),
          seconds_of(slurm_field(text, "TimeLimit")),
          slurm_field(text, "JobId"),
          slurm_field(text, "Reason"),
          is_time(slurm_field(text, "PreemptTime")),
          slurm_field(text, "ArrayTaskThrottle") == "1",
          restarts};
}

absl::Status check_chain(const SlurmJob& job, const SlurmJobState& state) {
  if (job.array_tasks == 1 || state.state.empty() || state.runs_one_task_at_a_time)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tasks of ", job.array,
                   " continue one run but may run at the same time: use sbatch --array=1-",
                   job.array_tasks, "%1"));
}

LeaveDecision decide_leave(const SlurmJob& job, const SlurmJobState& state) {
  constexpr int64_t kEarly = 5;  // slurmctld and the node use different clocks
  if (state.restarts > job.restarts) return {false, "it was requeued", true};
  if (state.state == "RUNNING") return {true, "the time limit is near, or the job is preempted"};
  if (state.state.empty()) return {true, "Slurm does not state the reason"};
  // PreemptMode=CANCEL without GraceTime: Slurm does not requeue the job.
  if (state.is_preempted || state.state == "PREEMPTED") return {true, "the job is preempted"};
  // A changed EndTime= moves the limit only to the next full minute.
  if (state.reason == "TimeLimit") return {true, "its time limit is reached"};
  if (state.limit_seconds && state.run_seconds.value_or(0) + kEarly >= *state.limit_seconds)
    return {true, "its time limit is reached"};
  return {false, absl::StrCat("Slurm ends it (", state.state, ")")};
}

std::optional<LeaveDecision> decide_workers_leave(const SlurmJob& job, const SlurmJobState& state) {
  // --signal without B: signals the workers only, up to a minute early.
  constexpr int64_t kNearLimitSeconds = 900;
  if (state.state != "RUNNING" || state.is_preempted) return decide_leave(job, state);
  if (!state.limit_seconds) return std::nullopt;
  const int64_t left = *state.limit_seconds - state.run_seconds.value_or(0);
  if (left > std::min(kNearLimitSeconds, *state.limit_seconds / 2)) return std::nullopt;
  return LeaveDecision{true, "its time limit is near"};
}

bool is_being_ended(const SlurmJobState& state) {
  return !state.state.empty() && state.state != "RUNNING";
}

}  // namespace muster::cli

// The queue policy: quotas, priority ceilings and shares of users and teams, and their usage.
// Values without behaviour.
//
// A job belongs to its owner or, without tokens, to its user, and to its team if it has one.
// Usage is the time of ranks, decayed with a half-life: old usage counts less. Among jobs of equal
// priority those of the team with the least usage per share come first, then those of the user with
// the least, then the oldest. Usage counts only while there is a policy.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/job_spec.h"
#include "common/time/time.h"

namespace muster::coordinator {

// The resources of running jobs that a quota bounds, and the number of waiting jobs.
enum class QuotaKind { kRunningRanks, kRunningGpus, kRunningNodes, kRunningJobs, kWaitingJobs };
constexpr size_t kQuotaKinds = 5;
// The keys in the policy's file and in --json.
constexpr std::array<std::string_view, kQuotaKinds> kQuotaNames = {
    "running_ranks_max", "running_gpus_max", "running_nodes_max", "running_jobs_max",
    "waiting_jobs_max"};

struct Quota {
  std::array<std::optional<int64_t>, kQuotaKinds> max{};
  std::optional<int32_t> priority_max{};
  double shares = 1;

  std::optional<int64_t> of(QuotaKind kind) const { return max[static_cast<size_t>(kind)]; }
  friend bool operator==(const Quota&, const Quota&) = default;
};

struct QueuePolicy {
  Quota user_defaults{};
  Quota team_defaults{};
  std::map<std::string, Quota> users{};
  std::map<std::string, Quota> teams{};
  Duration half_life = std::chrono::hours(7 * 24);

  friend bool operator==(const QueuePolicy&, const QueuePolicy&) = default;
};

// A user or a team.
struct Party {
  bool is_team = false;
  std::string name{};

  friend auto operator<=>(const Party&, const Party&) = default;
};
const Quota& quota_of(const QueuePolicy& policy, const Party& party);
// Returns the user of the job, and its team if it has one.
std::vector<Party> parties_of(const JobSpec& spec);
// "user ada", "team vision"
std::string text_of(const Party& party);

// The decayed usage of a party at a time. The stored form.
struct UsageRecord {
  Party party{};
  double rank_seconds = 0;  // 0: the record is to be deleted
  int64_t unix_ns = 0;

  friend bool operator==(const UsageRecord&, const UsageRecord&) = default;
};

}  // namespace muster::coordinator

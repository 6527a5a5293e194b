// The call for the usage and the quotas of users and teams.
#include <algorithm>
#include <utility>

#include "coordinator/shell/calls/muster_calls.h"

namespace muster::coordinator {
namespace {

constexpr int kSharesListedMax = 10'000;
constexpr double kSecondsPerHour = 3600;

void share_to_proto(const ShareRow& row, v1::Share& proto) {
  (row.party.is_team ? proto.mutable_team() : proto.mutable_user())->assign(row.party.name);
  proto.set_shares(row.quota.shares);
  proto.set_usage_hours(row.usage_rank_seconds / kSecondsPerHour);
  for (size_t kind = 0; kind < kQuotaKinds; ++kind) {
    if (!row.quota.max[kind]) continue;
    v1::QuotaUse& quota = *proto.add_quotas();
    quota.set_name(std::string(kQuotaNames[kind]));
    quota.set_used(row.uses[kind]);
    quota.set_max(*row.quota.max[kind]);
  }
  proto.set_has_priority_max(row.quota.priority_max.has_value());
  proto.set_priority_max(row.quota.priority_max.value_or(0));
  const auto use_of = [&](QuotaKind kind) {
    return static_cast<int32_t>(row.uses[static_cast<size_t>(kind)]);
  };
  proto.set_running_jobs(use_of(QuotaKind::kRunningJobs));
  proto.set_waiting_jobs(use_of(QuotaKind::kWaitingJobs));
  proto.set_running_ranks(use_of(QuotaKind::kRunningRanks));
}

}  // namespace

absl::Status MusterCalls::list_shares(Done<v1::ListSharesResponse> done) {
  return loop_.query([done = std::move(done)](const Core* core, Instant) {
    if (core == nullptr)
      return done(absl::UnavailableError("the coordinator is shutting down"), {});
    v1::ListSharesResponse response;
    std::vector<ShareRow> rows = core->shares();
    std::ranges::stable_partition(rows, [](const ShareRow& row) { return row.party.is_team; });
    for (const ShareRow& row : rows)
      if (response.shares_size() < kSharesListedMax) share_to_proto(row, *response.add_shares());
    const QueuePolicy* policy = core->policy();
    response.set_has_policy(policy != nullptr);
    if (policy != nullptr)
      response.set_half_life_hours(to_seconds(policy->half_life) / kSecondsPerHour);
    done(absl::OkStatus(), std::move(response));
  });
}

}  // namespace muster::coordinator

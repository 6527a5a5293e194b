#include "cli/jobs/shares_view.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

// "running_gpus_max 16/64"
std::string quotas_text(const v1::Share& share) {
  std::vector<std::string> texts;
  for (const v1::QuotaUse& quota : share.quotas())
    texts.push_back(absl::StrCat(quota.name(), " ", quota.used(), "/", quota.max()));
  if (share.has_priority_max())
    texts.push_back(absl::StrCat("priority_max ", share.priority_max()));
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

}  // namespace

std::string describe_shares(const v1::ListSharesResponse& shares) {
  std::vector<std::vector<std::string>> rows = {
      {"TEAM", "USER", "SHARES", "USAGE (RANK HOURS)", "RUNNING", "RANKS", "WAITING", "QUOTAS"}};
  for (const v1::Share& share : shares.shares()) {
    rows.push_back(
        {share.team().empty() ? "-" : share.team(), share.user().empty() ? "-" : share.user(),
         absl::StrFormat("%g", share.shares()), absl::StrFormat("%.1f", share.usage_hours()),
         absl::StrCat(share.running_jobs()), absl::StrCat(share.running_ranks()),
         absl::StrCat(share.waiting_jobs()), quotas_text(share)});
  }
  std::string text = format_table(rows);
  absl::StrAppend(&text,
                  shares.has_policy()
                      ? absl::StrFormat("usage halves every %g hours\n", shares.half_life_hours())
                      : "the coordinator has no --queue-policy: jobs of equal priority start "
                        "in the order of their submission\n");
  return text;
}

nlohmann::json shares_to_json(const v1::ListSharesResponse& shares) {
  nlohmann::json out = {{"shares", nlohmann::json::array()},
                        {"half_life_hours", shares.half_life_hours()},
                        {"has_policy", shares.has_policy()}};
  for (const v1::Share& share : shares.shares()) {
    nlohmann::json row = {{"user", share.user()},
                          {"team", share.team()},
                          {"shares", share.shares()},
                          {"usage_hours", share.usage_hours()},
                          {"running_jobs", share.running_jobs()},
                          {"running_ranks", share.running_ranks()},
                          {"waiting_jobs", share.waiting_jobs()},
                          {"quotas", nlohmann::json::object()}};
    for (const v1::QuotaUse& quota : share.quotas())
      row["quotas"][quota.name()] = {{"used", quota.used()}, {"max", quota.max()}};
    if (share.has_priority_max()) row["priority_max"] = share.priority_max();
    out["shares"].push_back(std::move(row));
  }
  return out;
}

}  // namespace muster::cli

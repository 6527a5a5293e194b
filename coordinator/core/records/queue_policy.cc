#include "coordinator/core/records/queue_policy.h"

#include <absl/strings/str_cat.h>

namespace muster::coordinator {

const Quota& quota_of(const QueuePolicy& policy, const Party& party) {
  const auto& named = party.is_team ? policy.teams : policy.users;
  const auto found = named.find(party.name);
  if (found != named.end()) return found->second;
  return party.is_team ? policy.team_defaults : policy.user_defaults;
}

std::vector<Party> parties_of(const JobSpec& spec) {
  std::vector<Party> parties = {{false, spec.owner.empty() ? spec.user : spec.owner}};
  if (!spec.team.empty()) parties.push_back({true, spec.team});
  return parties;
}

std::string text_of(const Party& party) {
  return absl::StrCat(party.is_team ? "team " : "user ", party.name);
}

}  // namespace muster::coordinator

#include "coordinator/core/records/caller.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

bool is_member(const Caller& caller, const std::string& team) {
  return !team.empty() && std::ranges::find(caller.teams, team) != caller.teams.end();
}

std::string text_of(const Caller& caller) {
  return caller.name.empty() ? "this token names no person"
                             : absl::StrCat("this token is ", caller.name, "'s");
}

}  // namespace

absl::Status check_access(const Caller& caller, const JobOwner& owner, JobId job,
                          std::string_view purpose, Access access) {
  const std::string team_that_may = access == Access::kTeam ? owner.team : "";
  const bool may = caller.is_admin || owner.name.empty() || caller.name == owner.name ||
                   is_member(caller, team_that_may);
  if (may) return absl::OkStatus();
  const std::string team =
      team_that_may.empty() ? "" : absl::StrCat(", members of ", team_that_may);
  return absl::PermissionDeniedError(absl::StrCat("job ", job.value(), " belongs to ", owner.name,
                                                  ": only ", owner.name, team, " and admins may ",
                                                  av(purpose), ", and ", text_of(caller)));
}

absl::Status set_owner(const Caller& caller, JobSpec& spec) {
  if (spec.priority > caller.priority_max)
    return absl::PermissionDeniedError(absl::StrCat("priority is ", spec.priority, ": ",
                                                    text_of(caller), ", and permits at most ",
                                                    caller.priority_max));
  spec.owner = caller.name;
  if (!caller.name.empty()) spec.user = caller.name;
  if (spec.team.empty() && !caller.teams.empty()) spec.team = caller.teams.front();
  if (spec.team.empty() || caller.is_admin || is_member(caller, spec.team)) return absl::OkStatus();
  const std::string shown = absl::StrCat("team is ", printable(spec.team, kNameBytesMax));
  if (caller.teams.empty())
    return absl::PermissionDeniedError(
        absl::StrCat(shown, ": ", text_of(caller), " and has no teams; omit --team"));
  return absl::PermissionDeniedError(
      absl::StrCat(shown, ": the teams of ", caller.name, "'s token are ",
                   absl::StrJoin(caller.teams, ", "), "; choose one of them, or omit --team"));
}

}  // namespace muster::coordinator

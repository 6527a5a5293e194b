// The callers of requests, and the owners of jobs.
//
// A job that was submitted with the token of a person (coordinator/shell/identity/tokens.h) belongs
// to that person and, if it names a team, to the members of the team. Only they and admins may
// change the job, and read its output, its stacks and the evidence of its incidents. Only the
// person and admins may update its program and variables, because ranks may run as the person
// (muster-worker --run-as-owner). A job without an owner belongs to all callers whose role permits
// the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "common/job/ids.h"
#include "common/job/job_spec.h"

namespace muster::coordinator {

struct Caller {
  // The person whose token the caller has; empty: the token names no person, or there is none.
  std::string name{};
  std::vector<std::string> teams{};
  bool is_admin = false;
  // The highest priority of the jobs that the caller may submit.
  int32_t priority_max = kPriorityMax;

  friend bool operator==(const Caller&, const Caller&) = default;
};

// Returns the caller of a coordinator without tokens, who may do everything.
inline Caller unrestricted_caller() { return {.is_admin = true}; }

// The person and the team that own a job; each may be empty.
struct JobOwner {
  std::string name{};
  std::string team{};

  friend bool operator==(const JobOwner&, const JobOwner&) = default;
};
inline JobOwner job_owner(const JobSpec& spec) { return {spec.owner, spec.team}; }

// The callers besides admins that may make a request about a job that has an owner.
enum class Access {
  kTeam,   // its owner and the members of its team
  kOwner,  // its owner
};

// Returns PermissionDenied unless the caller may make the request. `purpose` completes the sentence
// "only they may …": "cancel it", "read its output".
absl::Status check_access(const Caller& caller, const JobOwner& owner, JobId job,
                          std::string_view purpose, Access access = Access::kTeam);

// Sets the owner, the user and the team of a new job. Errors: PermissionDenied for a team of which
// the caller is no member, and for a priority above the caller's.
absl::Status set_owner(const Caller& caller, JobSpec& spec);

}  // namespace muster::coordinator

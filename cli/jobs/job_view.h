// A job as text for people. daemon/json has it for programs.
#pragma once

#include <string>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns whether a job in this state has ended for good.
// Returns the time for which the job has had ranks.
int64_t running_ns(const v1::Goodput& goodput);
bool is_terminal_state(v1::JobState state);
// Returns whether every rank of a job in this state is up; also true for a job suspected of a hang.
bool is_running_state(v1::JobState state);

// The functions below return text for people, with control characters escaped.

// Returns "job 7 (llama, attempt 2) RUNNING: every rank is up": the id, the name, the attempt if it
// is above 1, the state and its reason.
std::string headline(const v1::Job& job);
// Returns the output of `muster status`. `now_unix_ns`: the current time, for ages.
std::string describe_job(const v1::Job& job, int64_t now_unix_ns);
// Returns the rows of `muster list`.
std::string describe_job_list(const v1::ListJobsResponse& jobs, int64_t now_unix_ns);
std::string describe_workers(const v1::ListWorkersResponse& workers);
// Returns "7: rank 1 never entered … (muster incident show 7)".
std::string incident_line(const v1::IncidentNote& incident);
// Returns "attempt 1: rank 2 on node0 was killed by signal 9 (SIGKILL) after step 120: …".
std::string describe_fault(const v1::Fault& fault);

}  // namespace muster::cli

// A job as text for people and as JSON for programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

bool is_terminal_state(v1::JobState state);
// Every rank is up, whether it is suspected of a hang or not.
bool is_running_state(v1::JobState state);

// The field names of muster.v1, with ids as numbers, states as names, and the train config, where it is there, as an
// object.
nlohmann::json job_to_json(const v1::Job& job);
nlohmann::json worker_to_json(const v1::WorkerInfo& worker);

// For people: what a terminal would obey is escaped in all of these.
// "job 7 (first, attempt 2) RUNNING: every rank is up"
std::string headline(const v1::Job& job);
// What `muster status` shows. `now_unix_ns` dates ages.
std::string describe_job(const v1::Job& job, int64_t now_unix_ns);
// Rows of `muster list`.
std::string describe_jobs(const v1::ListJobsResponse& jobs, int64_t now_unix_ns);
std::string describe_workers(const v1::ListWorkersResponse& workers);
// "7: rank 1 never entered … (muster incident show 7)"
std::string incident_line(const v1::IncidentNote& incident);
// "attempt 1: rank 2 on node0 was killed by signal 9 (SIGKILL) after step 120: …"
std::string describe_fault(const v1::Fault& fault);

}  // namespace muster::cli

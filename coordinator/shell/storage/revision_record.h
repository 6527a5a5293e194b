// The stored form of a job's spec and of its revisions, as parts of the job's record
// (job_record.h). Missing members have their default.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

nlohmann::json dependencies_to_json(const std::vector<JobDependency>& dependencies);
std::vector<JobDependency> dependencies_from_json(const nlohmann::json& list);
nlohmann::json spec_to_json(const JobSpec& spec);
JobSpec spec_from_json(const nlohmann::json& record);

// Adds the job's revisions, its pending update and its trial to its record.
void add_revisions(const Job& job, nlohmann::json& record);
// Reads what add_revisions() has added. Throws nlohmann::json::exception for another type.
void read_revisions(const nlohmann::json& record, Job& job);

}  // namespace muster::coordinator

// Goodput and lost time of jobs, as text for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns "97.3%"; "-" before the job's first start.
std::string goodput_percent(const v1::Goodput& goodput);
// Returns "goodput 97.3% of 2h 13m; lost: hang 2m 03s, loading 41s", with the largest loss first;
// an empty string before the job's first start.
std::string goodput_line(const v1::Goodput& goodput);
// Returns the sum over `jobs`. Every hour of every job has the same weight.
v1::Goodput goodput_of_all(const std::vector<v1::Job>& jobs);

// Returns the output of `muster goodput`: a row per job, the sum of all jobs, and the lost time by
// cause and by activity.
std::string describe_goodput(const std::vector<v1::Job>& jobs);
nlohmann::json goodput_report_to_json(const std::vector<v1::Job>& jobs);

}  // namespace muster::cli

// The page's objects of the fleet and of rows of jobs, and the differences between two samples.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "coordinator/shell/web/fleet_sample.h"

namespace muster::coordinator {

// Returns the object Fleet of the API. A sample without totals takes them from `before`.
nlohmann::json fleet_to_json(const FleetSample& sample, const nlohmann::json& before);
// Returns the members of `after` that differ from `before`; null if none does.
nlohmann::json changed_members(const nlohmann::json& before, const nlohmann::json& after);

// Returns the object JobRow of the API; of a row that was sent `before`, the number and the members
// that differ, and null if none does.
nlohmann::json row_to_json(const JobRow* before, const JobRow& after);

// Returns an object with the members of a point's columns.
nlohmann::json point_to_json(const MetricPoint& point);
// Returns the object Metrics of the API.
nlohmann::json metrics_to_json(uint64_t job, const std::vector<MetricPoint>& points);

}  // namespace muster::coordinator

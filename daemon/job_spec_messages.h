// Converts jobs between muster.v1.JobSpec and common/job/job_spec.h's JobSpec. Plain fields are
// converted by the table kJobFields; the fields listed below have their own conversion. Free
// functions; thread-safe.
#pragma once

#include <array>
#include <string_view>

#include "common/job/job_spec.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// The fields of muster.v1.JobSpec without a row in kJobFields.
inline constexpr std::array<std::string_view, 4> kStructuredJobFields = {
    "environment", "stack_traces", "smaller", "dependencies"};

JobSpec job_spec_from_proto(const v1::JobSpec& proto);
// Requires an empty `proto`.
void job_spec_to_proto(const JobSpec& spec, v1::JobSpec& proto);
void dependency_to_proto(const JobDependency& dependency, v1::Dependency& proto);

}  // namespace muster::daemon

// Conversions between the API and the revisions of jobs.
#pragma once

#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Sets the fields of `proto` about the job's revisions.
void revisions_to_proto(const Job& job, v1::Job& proto);
JobUpdateRequested update_from_proto(const v1::UpdateJobRequest& proto);

}  // namespace muster::coordinator

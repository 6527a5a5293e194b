// Checks the GPUs of this machine for a job that is to run on it.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns FailedPrecondition, with the GPUs that this machine has, if the job's ranks need more
// exclusive GPUs: such a job would wait forever.
absl::Status check_local_gpus(const v1::JobSpec& spec);

// Returns the number of this machine's GPUs; 0 if they cannot be counted.
int32_t local_gpus();

// Returns the name of this machine's first GPU as its driver reports it; "" if there is none.
std::string local_gpu_name();

}  // namespace muster::cli

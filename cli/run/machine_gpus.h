// The GPUs of this machine, for a job that is to run on it.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// FailedPrecondition says what there is, where the job's ranks want more GPUs to themselves than the worker of `muster run` would have: it would wait for ever.
absl::Status check_machine_gpus(const v1::JobSpec& spec);

}  // namespace muster::cli

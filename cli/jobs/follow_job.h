// Submits a job to a coordinator and follows it to its end, with the same output as `muster run`:
// the ranks' lines and notices about the job.
#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "cli/coordinator_target.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Blocks until the job ends or a signal ends this process. Returns the exit code of the process:
// the job's, or 130 after a signal, which does not affect the job. Calls `first` before the
// submission. Requires that this process has no other thread yet: the function blocks the signals
// before the client creates threads.
int submit_and_follow(const CoordinatorTarget& coordinator, const v1::JobSpec& spec,
                      const std::string& request_id, const std::function<void(Client&)>& first);

}  // namespace muster::cli

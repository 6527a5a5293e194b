// Submits a job to a coordinator and follows it to its end, with the output of `muster run`: the
// ranks' lines, notices and the exit code.
#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "cli/coordinator_target.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the exit code of the process: the job's, or 130 when this process was asked to leave,
// which does not affect the job. Requires that no thread exists yet. Calls `first` before the
// submission, after the signals are blocked, because a client creates threads. Blocks.
int submit_and_follow(const CoordinatorTarget& coordinator, const v1::JobSpec& spec,
                      const std::string& request_id, const std::function<void(Client&)>& first);

}  // namespace muster::cli

// Submits a job to a coordinator and follows it to its end, as `muster run` shows its own: ranks' output, news, the exit code.
#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "cli/coordinator_target.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the process's exit code: the job's, or 130 when somebody has asked this process to leave, which the job does not notice. Before
// any thread exists. `first` is called before the job is submitted, once signals are taken: a client makes threads. Blocks.
int submit_and_follow(const CoordinatorTarget& coordinator, const v1::JobSpec& spec,
                      const std::string& request_id, const std::function<void(Client&)>& first);

}  // namespace muster::cli

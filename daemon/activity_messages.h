// Converts the activity of a rank's processes between wire messages and
// common/job/rank_evidence.h's values. Text is made printable and cut to its bound. Free functions;
// thread-safe.
#pragma once

#include "common/job/rank_evidence.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

ProcessActivity activity_from_proto(const v1::ProcessActivity& proto);
void activity_to_proto(const ProcessActivity& activity, v1::ProcessActivity& proto);

}  // namespace muster::daemon

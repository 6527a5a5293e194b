// Converts records of attempts to wire messages. The message is also the stored record.
#pragma once

#include "coordinator/core/records/attempt_record.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

v1::JobAttempt attempt_to_proto(const AttemptRecord& record);

}  // namespace muster::coordinator

// The time after which a refused call should be repeated, as gRPC's own retries understand it
// (gRFC A6).
#pragma once

#include <chrono>
#include <string>

#include <grpcpp/grpcpp.h>

#include "common/time/time.h"
#include "daemon/limits.h"

namespace muster::coordinator {

// Call it before the call's status is sent.
inline void add_retry_hint(grpc::CallbackServerContext& context, Duration time) {
  context.AddTrailingMetadata(daemon::kRetryHint,
                              std::to_string(time / std::chrono::milliseconds(1)));
}

}  // namespace muster::coordinator

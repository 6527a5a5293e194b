// Converts GPUs between wire messages and common/job/gpu.h's values. Text is made printable and cut
// to its bound. Free functions; thread-safe.
#pragma once

#include "common/job/gpu.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

Gpu gpu_from_proto(const v1::Gpu& proto);
void gpu_to_proto(const Gpu& gpu, v1::Gpu& proto);

}  // namespace muster::daemon

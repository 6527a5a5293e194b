// Which GPUs the node had when its worker ran last, in a file of the worker's folder: one that does not come back from a reboot is noticed. Blocks on
// the disk.
#pragma once

#include <string>
#include <vector>

#include "worker/gpus/gpu_report.h"

namespace muster::worker {

// Compares, and keeps in the file what there is now and what there was: a clause for each GPU that is missing, until somebody removes the file, as it says.
// A file that cannot be read or written tells nothing.
std::vector<std::string> missing_gpus(const std::string& path, const GpuReport& report);

}  // namespace muster::worker

// A file in the worker's folder that records the node's GPUs, so that a GPU that disappears in a
// reboot is noticed. Blocks on the disk.
#pragma once

#include <string>
#include <vector>

#include "worker/gpus/gpu_report.h"

namespace muster::worker {

// Compares `report` with the file and stores the union of both. Returns a clause for each missing
// GPU, until an operator removes the file, as the clause explains. Returns nothing if the file
// cannot be read or written.
std::vector<std::string> missing_gpus(const std::string& path, const GpuReport& report);

}  // namespace muster::worker

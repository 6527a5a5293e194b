// A file in the worker's folder that records the node's GPUs, so that the worker notices a GPU that
// disappears in a reboot. Functions block on the disk.
#pragma once

#include <string>
#include <vector>

#include "worker/gpus/gpu_report.h"

namespace muster::worker {

// Compares `report` with the file at `path`. If `report` has at least as many GPUs as the file,
// writes its GPUs into the file and returns nothing: the node was repaired, or the disk is now in
// another machine. If it has fewer, leaves the file unchanged and returns a clause for each GPU
// that the file lists and `report` lacks. The clause names the file, which the operator removes if
// the GPU was taken out on purpose. Returns nothing if the file cannot be read.
std::vector<std::string> missing_gpus(const std::string& path, const GpuReport& report);

}  // namespace muster::worker

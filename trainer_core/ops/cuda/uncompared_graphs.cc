#include "trainer_core/ops/cuda/graphs.h"

namespace muster::trainer::cuda {

bool compares_runs() { return false; }
void compare_runs(const RunParts& /*captured*/, const RunParts& /*now*/) {}

}  // namespace muster::trainer::cuda

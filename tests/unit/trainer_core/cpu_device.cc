#include "tests/unit/trainer_core/large_shapes.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {

std::shared_ptr<Backend> device_of_tests() { return nullptr; }
NcclOptions nccl_of_tests() { return {}; }
bool large_shapes() { return true; }

}  // namespace muster::trainer

// The parts of a saved plan that the trainer computes (base/saved_plan.h).
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns {"threads", "schedule", "layouts", "libraries", "algorithms"} of a saved plan for this
// config. `threads`: the threads of a rank on CPUs; 0 with devices. `device`: the device whose GEMM
// algorithms are copied from those that an earlier run of the job has stored. Plans each pipeline
// stage twice, for packed and for other sequences: some milliseconds per stage.
nlohmann::json saved_layouts(const TrainConfig& config, int32_t threads, const std::string& device);

}  // namespace muster::trainer

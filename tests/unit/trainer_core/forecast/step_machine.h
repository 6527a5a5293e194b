// A machine for tests of step times: nodes with H100 GPUs.
#pragma once

#include "trainer_core/forecast/step_cost.h"

namespace muster::trainer {

inline StepMachine machine_with(double devices_per_node) {
  return {.device = {.bf16_tflops = 989,
                     .fp8_tflops = 1979,
                     .fp32_tflops = 494.7,
                     .memory_gb_s = 3350,
                     .multiprocessors = 132,
                     .node_gb_s = 450,
                     .node_latency_us = 2,
                     .network_gb_s = 50,
                     .network_latency_us = 6,
                     .host_gb_s = 55,
                     .devices_per_node = devices_per_node},
          .constants = {}};
}

}  // namespace muster::trainer

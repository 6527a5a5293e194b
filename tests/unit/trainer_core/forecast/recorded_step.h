// Configs of small models for tests of step times, and their recorded steps.
#pragma once

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/forecast/step_recorder.h"

namespace muster::trainer {

// Degrees of data, pipeline, fsdp, sequence, context, expert and tensor.
inline TrainConfig config_with(const Degrees& degrees) {
  TrainConfig config = tiny_config(mesh_with(degrees).ranks());
  config.hardware = Hardware::kGpu;
  config.dtype = ComputeType::kBfloat16;
  config.mesh.ici = degrees;
  config.per_device_batch_size = 8;
  config.pipeline_microbatches = 2 * degrees[static_cast<size_t>(MeshAxis::kPipeline)];
  config.model.num_layers = 4;
  return config;
}

inline StepTrace trace_of(const TrainConfig& config, int32_t rank = 0) {
  auto trace = record_step(config, rank);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return *std::move(trace);
}

}  // namespace muster::trainer

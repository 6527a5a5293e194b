// The waits of a step for storage, which the trainer's forecast of a step does not have. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "jobspec/files/topology.h"
#include "trainer_core/base/train_config.h"

namespace muster::cli {

// Seconds; 0: none, or not known without storage_gb_s.
struct StorageWaits {
  double read_seconds = 0;        // the time to read a node's sequences of a step, if it reads any
  double data_seconds = 0;        // the wait of each step
  double save_stall_seconds = 0;  // the time for which training waits in one save
  double save_seconds = 0;        // the time of one save, from the copy to the end of the write
  double checkpoint_seconds = 0;  // stalls at checkpoint_period, per step and beside it
};

// The time of a step without waits for storage.
struct StepSeconds {
  double all = 0;
  double update = 0;  // the part after the passes
};

// Returns the time of a step in the output of `muster-trainer plan`, whose part is "time".
StepSeconds step_seconds_of(const nlohmann::json& time);

// Returns the wait for data of a step that takes `step_seconds` otherwise: the trainer reads the
// data of the next step meanwhile, and synthetic data is not read.
double data_wait(const trainer::TrainConfig& config, double read_seconds, double step_seconds);

// Returns the waits of a job:
//
//     save stall  each rank of one data replica copies its part to host memory. With
//                 async_checkpointing this runs beside the passes of the next step, and its update
//                 waits for the rest of the copy; otherwise training waits for the copy, and until
//                 the replica's nodes have written it
//     checkpoint  the save stall and, if the write of one save is not over when the next one
//                 begins, the rest of it
StorageWaits storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                           const StepSeconds& step, double checkpoint_bytes);

}  // namespace muster::cli

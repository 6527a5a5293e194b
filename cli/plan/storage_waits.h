// The waits of a step for storage, which the trainer's forecast of a step does not have. Pure.
#pragma once

#include "jobspec/files/topology.h"
#include "trainer_core/base/train_config.h"

namespace muster::cli {

// Seconds; 0: none, or not known without storage_gb_s.
struct StorageWaits {
  double data_seconds = 0;        // the wait of each step
  double save_stall_seconds = 0;  // the time for which training waits in one save
  double checkpoint_seconds = 0;  // stalls at checkpoint_period, per step and beside it
};

// Returns the waits of a job whose steps take `step_seconds` otherwise:
//
//     data        the time to read a node's sequences, less that of a step: the trainer reads ahead
//     save stall  each rank of one data replica copies its part to host memory; without
//                 async_checkpointing, training also waits until the replica's nodes wrote it
//     checkpoint  the save stall and, if the write of one save is not over when the next one
//                 begins, the rest of it
StorageWaits storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                           double step_seconds, double checkpoint_bytes);

}  // namespace muster::cli

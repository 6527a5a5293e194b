// The prediction of `muster plan` that a job carries: ranks print it beside what they measure, and
// the coordinator exports both (muster_job_planned_…).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/jobs/job_arguments.h"
#include "jobspec/files/calibration.h"
#include "jobspec/files/topology.h"
#include "jobspec/resolve.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

struct PredictedStep {
  double seconds = 0;                // 0: unknown
  double communication_seconds = 0;  // the part in which the computation waits for communication
  double data_seconds = 0;           // the part in which it waits for data
  double read_seconds = 0;           // the time to read the data of a step, if the job reads any
  double checkpoint_seconds = 0;     // stalls for checkpoints, per step and beside it
};

// Returns the prediction in the output of `muster-trainer plan`. Returns zeros if the output has no
// step time, or one above a day, the limit of saved plans. The communication takes at most the
// whole step.
PredictedStep predicted_step(const nlohmann::json& forecast);

// Adds the wait for data of a job with this config to a known time, by step.read_seconds.
void add_data_wait(const trainer::TrainConfig& config, PredictedStep& step);

// Adds the waits for storage to a known time. `forecast`: as above.
void add_storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                       const nlohmann::json& forecast, PredictedStep& step);

// Returns a StepMachine (trainer_core/forecast/step_cost.h). Without a calibration, its constants
// have their defaults.
nlohmann::json step_machine(const jobspec::Topology& topology,
                            const std::optional<jobspec::Calibration>& calibration);

// Stores the prediction in the fields and in the trainer's config of the job.
void set_prediction(const PredictedStep& step, uint64_t memory_bytes, v1::JobSpec& spec);

// Returns a topology with this device: the first measured one (Topology::is_measured) or, if there
// is none, the first one. Machine types with the same device may have different networks. If their
// bandwidths or latencies differ, the result for several nodes has no network, so no step time can
// be predicted, unless it is measured and its file has a network. A measured topology whose file
// has none gets that of the others. Returns nullopt if no topology has the device. Pure.
std::optional<jobspec::Topology> topology_of_device(
    std::string_view device, const std::vector<jobspec::Topology>& topologies, int32_t nodes);

// Returns the folders with calibrations that a job's config may use; those beside Muster's own
// base.yml if the config cannot be loaded.
std::vector<std::string> known_calibrations(const JobArguments& arguments);

// Predicts a job on these devices, and stores the result in its fields and config. The time of a
// step is predicted if the topology has what it needs and `folders` have a calibration of the
// trainer. Does nothing if the job has a prediction (that of a saved plan), runs a program, cannot
// be planned, or does not run on devices of this kind. Blocks for some tenths of a second, at most
// for ten seconds.
void predict(const jobspec::Topology& topology, const std::vector<std::string>& folders,
             v1::JobSpec& spec);

}  // namespace muster::cli

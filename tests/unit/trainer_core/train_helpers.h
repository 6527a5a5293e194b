// Runs small trainings whose ranks are threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/process/exit_code.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/recovery/local_checkpoints.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Returns a config of two layers with a width of 32 and synthetic data. The global batch is 4
// sequences of 16 tokens, on 1, 2 or 4 ranks.
TrainConfig tiny_config(int ranks);

// Returns the config with its ranks along the fsdp axis instead of data.
TrainConfig along_fsdp(TrainConfig config);
// Returns the config with its ranks along the tensor axis, where all ranks compute the same
// sequences.
TrainConfig along_tensor(TrainConfig config);

// Returns the backend of the ranks of the runs below; null: the CPU. Defined by cpu_device.cc, or
// by a test program for another backend.
std::shared_ptr<Backend> device_of_tests();
// Returns the NCCL options of the ranks; empty: the ranks choose.
NcclOptions nccl_of_tests();

// The results of a run.
struct RunResult {
  std::vector<ExitCode> codes;                       // one per rank
  std::vector<std::vector<StepRecord>> records;      // indexed by rank, then by step
  std::vector<std::vector<EvalRecord>> evaluations;  // indexed by rank, then by evaluation
  std::vector<int64_t> checkpoint_steps;             // from each rank's page at the end
  std::string out;                                   // output of rank 0
  std::string err;                                   // errors of all ranks, in rank order

  std::vector<double> losses() const;
};

// Called after each step. It may set `stop`, which is equivalent to a SIGTERM to that rank.
using StepHook = std::function<void(int rank, const StepRecord& record, std::atomic<bool>& stop)>;
// Runs one rank per config.
RunResult run_ranks(const std::vector<TrainConfig>& configs, const StepHook& hook = nullptr);
// Called after each step, with all signals of the rank.
using SignalsHook = std::function<void(int rank, const StepRecord& record, StopSignals& signals)>;
RunResult run_ranks_with_signals(const std::vector<TrainConfig>& configs, const SignalsHook& hook,
                                 const std::function<LocalStorage(int rank)>& place = nullptr,
                                 uint64_t known_checkpoint_step = 0);
// Runs all ranks of the config's mesh with this config.
RunResult run(const TrainConfig& config, const StepHook& hook = nullptr);

// Returns the bytes of all tensor files of a checkpoint. Fails the test if there are none.
std::string checkpoint_bytes(const std::string& folder);

// Writes a text with structure, its tokenizer ("t.model") with kTextVocab tokens, and its shards
// ("data") to `folder`.
constexpr int32_t kTextVocab = 320;
void make_text_dataset(const std::string& folder);

}  // namespace muster::trainer

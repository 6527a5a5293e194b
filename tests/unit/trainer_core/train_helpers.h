// Runs small trainings with ranks as threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/exit_code.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/recovery/local_checkpoints.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Two layers, 32 wide; synthetic data; a global batch of 4 sequences of 16 on any number of ranks
// up to 4.
TrainConfig tiny_config(int ranks);

// The same with its ranks along fsdp instead of data.
TrainConfig along_fsdp(TrainConfig config);
// The same with its ranks along tensor, all of which compute the same sequences.
TrainConfig along_tensor(TrainConfig config);

// The backend of the ranks of the runs below; null: the CPU. Defined by cpu_device.cc, or by a test
// program of another backend.
std::shared_ptr<Backend> device_of_tests();
// The collective library for device memory; empty: the ranks choose.
NcclOptions nccl_of_tests();

struct RunResult {
  std::vector<ExitCode> codes;                       // by rank
  std::vector<std::vector<StepRecord>> records;      // by rank, then step
  std::vector<std::vector<EvalRecord>> evaluations;  // likewise
  std::vector<int64_t> checkpoint_steps;             // by rank, from their pages at the end
  std::string out;                                   // of rank 0
  std::string err;                                   // of all ranks, in rank order

  std::vector<double> losses() const;
};

// `on_step(rank, record)` may set `stop`, which stands for SIGTERM to that rank.
using StepHook = std::function<void(int rank, const StepRecord& record, std::atomic<bool>& stop)>;
RunResult run_ranks(const std::vector<TrainConfig>& configs, const StepHook& hook = nullptr);
// The same with all signals.
using SignalsHook = std::function<void(int rank, const StepRecord& record, StopSignals& signals)>;
RunResult run_ranks_with_signals(const std::vector<TrainConfig>& configs, const SignalsHook& hook,
                                 const std::function<LocalStorage(int rank)>& place = nullptr,
                                 uint64_t known_checkpoint_step = 0);
// The same config for all ranks of its mesh.
RunResult run(const TrainConfig& config, const StepHook& hook = nullptr);

// Returns the bytes of all tensor files of one checkpoint; fails the test if there are none.
std::string checkpoint_bytes(const std::string& folder);

// Writes a text with structure, its tokenizer ("t.model") and shards ("data") to `folder`;
// vocabulary kTextVocab.
constexpr int32_t kTextVocab = 320;
void make_text_dataset(const std::string& folder);

}  // namespace muster::trainer

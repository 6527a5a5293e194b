// The command `muster-trainer check`: all checks of a config that need only files, before anything
// is started.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/base/machine_memory.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The maximum bytes of a data set that is read completely and compared with its checksums, which
// takes seconds.
constexpr uint64_t kPreflightPayloadBytesMax = uint64_t{1} << 30;

// kCompare: the plans of the ranks must fit in the memory of the machine and its devices.
enum class PlanCheck { kCompare, kOmit };

// Returns the first problem as a sentence for the user. Checks that `machine` has the devices that
// the ranks of a node need, and by `plan` the memory; nullopt: the ranks run on other machines.
// Checks the shards, their tokenizer and vocabulary, and that the data is at least as long as a
// sequence. Checks that the newest checkpoint is of the same model, that the checkpoint directory
// has room, and that outputs can be written. Writing is checked last; if it fails, removes the
// folders that the check has created.
absl::Status preflight(const TrainConfig& config, const std::optional<MachineRoots>& machine,
                       PlanCheck plan = PlanCheck::kCompare);

// Checks that the memory of `machine` suffices for the ranks of a node. Without this check the OOM
// killer would end the job, possibly after hours in a queue.
absl::Status check_memory(const TrainConfig& config, const MachineRoots& machine);

}  // namespace muster::trainer

// `muster-trainer check`: all checks of a config that need nothing but files, before anything
// starts.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/machine_memory.h"

namespace muster::trainer {

// Data sets up to this size are read in whole and compared with their checksums: seconds of
// reading.
constexpr uint64_t kPreflightPayloadBytesMax = uint64_t{1} << 30;

// Returns the first problem as a sentence for the user: memory or devices of `machine` that do not
// suffice for a node's ranks (nullopt: they run elsewhere), shards and their tokenizer, vocabulary,
// sequences longer than the data, a newest checkpoint of another model, a checkpoint directory
// without room, or outputs that cannot be written. Writing is checked last; if it fails, folders
// created by the check are removed again.
absl::Status preflight(const TrainConfig& config, const std::optional<MachineRoots>& machine);

}  // namespace muster::trainer

// `muster-trainer check`: everything that files can say about a config before anything is started.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/machine_memory.h"

namespace muster::trainer {

// Data sets up to this size are read in whole and compared with their checksums: seconds of reading.
constexpr uint64_t kPreflightPayloadBytesMax = uint64_t{1} << 30;

// The first thing that is wrong, in a sentence for the user: memory that the ranks of a node do not find on `machine` (none:
// they run elsewhere), shards and their tokenizer, vocabulary, sequence longer than the
// data, newest checkpoint of another model, checkpoint directory that has no room or cannot be written, metrics file. Whether
// they can be written is tried last; folders that this made are removed again when it fails.
absl::Status preflight(const TrainConfig& config, const std::optional<MachineRoots>& machine);

}  // namespace muster::trainer

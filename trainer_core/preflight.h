// `muster-trainer check`: everything that files can say about a config before anything is started.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Data sets up to this size are read in whole and compared with their checksums: seconds of reading.
constexpr uint64_t kPreflightPayloadBytesMax = uint64_t{1} << 30;

// The first thing that is wrong, in a sentence for the user: shards and their tokenizer, vocabulary, sequence longer than the
// data, checkpoint directory that cannot be written or has no room, newest checkpoint of another model, metrics file.
absl::Status preflight(const TrainConfig& config);

}  // namespace muster::trainer

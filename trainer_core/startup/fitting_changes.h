// Config changes with which a training that is too large would fit into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// A suggestion of more FSDP than this is of no practical use.
constexpr int32_t kFsdpTimesMax = 64;

// A sequence shorter than this is no useful suggestion.
constexpr int32_t kSuggestedLengthMin = 128;

enum class Fsdp : uint8_t {
  kMoreNodes,   // ranks on the same node share its memory
  kMoreInNode,  // each additional rank has a device of its own
};

// Returns changes of the config for which `needed` returns at most `limit` bytes; each suffices by
// itself: "remat_policy=full". If no single key suffices on these ranks, adds changes of several
// keys: the smallest batch and the remat policy that retains least, with more FSDP, checkpoints in
// the foreground, a shorter sequence or a smaller model. Returns none if these do not suffice
// either. `needed` is called for valid configs only, some dozens of times.
std::vector<std::string> fitting_changes(const TrainConfig& config, Fsdp fsdp, size_t limit,
                                         const std::function<size_t(const TrainConfig&)>& needed);

// Returns "what would fit, each by itself:" and a line per change; "" if there is none.
std::string list_of(const std::vector<std::string>& changes);

}  // namespace muster::trainer

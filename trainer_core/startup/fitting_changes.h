// Config changes with which a training that is too large would fit into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// A suggestion of more FSDP than this is of no practical use.
constexpr int32_t kFsdpTimesMax = 64;

enum class Fsdp : uint8_t {
  kAsItIs,      // ranks on the same node share its memory
  kMoreInNode,  // each additional rank has a device of its own
};

struct FittingChanges {
  // Keys with values, each of which suffices by itself: "remat_policy=full".
  std::vector<std::string> alone;
  // If none does: the smallest batch, the remat policy that retains least, and as much FSDP as
  // needed or checkpoints in the foreground, together; nothing if they do not suffice either.
  std::optional<std::string> together;
};

// Returns changes for which `needed` returns at most `limit` bytes. `needed` is called for valid
// configs only, some dozens of times.
FittingChanges fitting_changes(const TrainConfig& config, Fsdp fsdp, size_t limit,
                               const std::function<size_t(const TrainConfig&)>& needed);

// Returns "what would fit, each by itself:" and a line per change; empty if there is none.
std::string list_of(const FittingChanges& changes);

}  // namespace muster::trainer

// Config changes with which a training that is too large would fit into memory: the nearest
// settings of its space (base/setting_space.h), those that change fewest keys first.
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

// The plans of a search for changes: some seconds for the largest models.
constexpr int32_t kAdvicePlansMax = 800;

enum class Fsdp : uint8_t {
  kMoreNodes,   // ranks on the same node share its memory
  kMoreInNode,  // each additional rank has a device of its own
};

struct AdviceOptions {
  Fsdp fsdp = Fsdp::kMoreNodes;
  // Whether `needed` counts the ranks of all pipeline stages, so that their number may change.
  bool changes_pipeline = false;
  // Whether the job gives global_batch_size, from which its per_device_batch_size follows: changes
  // omit that key, keep the sequences of a step, or give another global_batch_size.
  bool keeps_global_batch = false;
  // The compile_topology_num_slices of a planned job, whose number of nodes only this key changes;
  // 0: the mesh determines the number of nodes.
  int32_t planned_slices = 0;
  // Returns the seconds of a step per token; infinite if unknown. Empty: no time is known.
  std::function<double(const TrainConfig&)> seconds_per_token = nullptr;
};

// A change of the config.
struct FittingChange {
  // The words that a user adds to the config's: "remat_policy=full"; may be empty if there is a
  // note.
  std::string keys;
  std::string note = {};  // further needs: "4 ranks"; empty: none
};

// Returns changes of the config for which `needed` returns at most `limit` bytes; each suffices by
// itself. First those that change one setting, the best value of each; without a time, that is the
// value that needs the most memory. If there is none, changes of two settings, then of all. The
// fastest is the first, if the time is known; more ranks are the last. If no settings suffice on
// these ranks, adds changes of the smallest settings with more FSDP, a shorter sequence or a
// smaller model. Returns none if these do not suffice either. `needed` is called for valid configs
// only, at most kAdvicePlansMax times and some dozens more.
std::vector<FittingChange> fitting_changes(const TrainConfig& config, const AdviceOptions& options,
                                           size_t limit,
                                           const std::function<size_t(const TrainConfig&)>& needed);

// Returns the settings that do not suffice if there are no changes, as the subject of a sentence.
std::string insufficient_changes(const TrainConfig& config, const std::string& more_fsdp);
// Returns "what would fit, each by itself:" and a line per change, which a shell accepts: the note
// is a comment. "" if there is none.
std::string list_of(const std::vector<FittingChange>& changes);
// Returns "remat_policy=full, or ici_fsdp_parallelism=4 (4 ranks)".
std::string sentence_of(const std::vector<FittingChange>& changes);

}  // namespace muster::trainer

// Outside input is judged here before the core acts on it: every string and number has a bound, and
// an error names the field, its value and what would be right. The shells of clients check earlier
// and say more; this is what holds when a client does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/limits.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct InputLimits {
  size_t name_bytes_max = kNameBytesMax;
  size_t path_bytes_max = 4096;  // PATH_MAX
  size_t train_config_bytes_max = kTrainConfigBytesMax;
  size_t environment_entries_max = kEnvironmentEntriesMax;
  size_t environment_value_bytes_max = 32768;  // a quarter of what Linux takes for one string
  size_t command_words_max = kCommandWordsMax;
  size_t command_bytes_max = kCommandBytesMax;
  size_t request_id_bytes_max = 128;
  size_t detail_bytes_max = 1024;  // one line of a rank's stderr
  int32_t nodes_max = kNodesMax;
  int32_t ranks_per_node_max = kRanksPerNodeMax;
  int32_t ranks_max = 1 << 20;
  int32_t priority_max = 1'000'000;  // and its negative
  int32_t restarts_max = 100'000;
};

absl::Status check_spec(const JobSpec& spec, const InputLimits& limits);
absl::Status check_request_id(std::string_view request_id, const InputLimits& limits);
absl::Status check_exclusion(const NodeExcludeRequested& event, const InputLimits& limits);
absl::Status check_registration(const WorkerRegistered& event, const InputLimits& limits);

// `text` without control characters, cut to `bytes_max` at a character's border.
std::string one_line(std::string_view text, size_t bytes_max);

}  // namespace muster::coordinator

// Bounds of the input from clients and workers. The bounds of a job's plain fields are in
// common/job/job_spec.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/job/limits.h"

namespace muster::coordinator {

struct InputLimits {
  size_t name_bytes_max = kNameBytesMax;
  size_t train_config_bytes_max = kTrainConfigBytesMax;
  // The bound of all texts of a spec together. The message that starts ranks contains the spec, and
  // is at most 4 MiB (daemon/limits.h): a larger spec would break the stream of each worker that it
  // is sent to.
  size_t spec_bytes_max = size_t{5} << 19;
  size_t environment_entries_max = kEnvironmentEntriesMax;
  size_t environment_value_bytes_max = 32768;  // a quarter of Linux's limit for one string
  size_t request_id_bytes_max = 128;
  size_t detail_bytes_max = 1024;  // one line of a rank's stderr
  int32_t ranks_per_node_max = kRanksPerNodeMax;
  int32_t ranks_max = 1 << 20;
};

}  // namespace muster::coordinator

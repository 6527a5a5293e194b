// Reads files that another rank has written but this one may not see yet: a network file system
// caches a folder's entries for some seconds (NFS: acdirmax, 60 s), including missing names. A
// missing file is damage if a rank searches by itself; if another rank reports that it exists, the
// rank waits for it.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "common/time.h"

namespace muster::trainer {

// The longest time for which such a file system may use its cache.
constexpr Duration kVisibleWithin = std::chrono::seconds(65);

// Marks an error that waiting may cure.
absl::Status not_visible_yet(absl::Status status);

// Runs `read` again and again, for at most `within`, while the data is not visible. Returns the
// last status, which states how long it has waited.
absl::Status when_visible(absl::FunctionRef<absl::Status()> read, Duration within = kVisibleWithin);

}  // namespace muster::trainer

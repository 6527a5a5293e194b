// Waits for files that another rank has written but that are not visible on this rank yet. A
// network file system caches the entries of a folder, including missing names, for some time (NFS:
// acdirmax, 60 s). So if another rank has reported that a file exists, this rank waits for it;
// otherwise a missing file is damage.
#pragma once

#include <iostream>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "common/time/time.h"

namespace muster::trainer {

// The maximum time for which a file system may use such a cache.
constexpr Duration kVisibleWithin = std::chrono::seconds(65);
// The time after which a line states what is awaited.
constexpr Duration kVisibleSilence = std::chrono::seconds(5);

// Marks an error as one that may disappear with time, for when_visible().
absl::Status not_visible_yet(absl::Status status);

// Calls `read` repeatedly, for at most `within`, until it returns a status that is not marked by
// not_visible_yet(). Prints one line with the last status to `log` after `silence`. Returns the
// last status; an error states the time that was waited.
absl::Status when_visible(absl::FunctionRef<absl::Status()> read, Duration within = kVisibleWithin,
                          Duration silence = kVisibleSilence, std::ostream& log = std::cerr);

}  // namespace muster::trainer

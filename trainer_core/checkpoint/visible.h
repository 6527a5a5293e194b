// What another rank has written and this one does not see yet: a network file system keeps what it knows of a folder for some
// seconds (NFS: acdirmax, 60 s), also that a name is not there. A file that is missing is damage where a rank looks by itself; where another
// rank says that it is there it is waited for.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "common/time.h"

namespace muster::trainer {

// As long as such a file system may go on with what it knew.
constexpr Duration kVisibleWithin = std::chrono::seconds(65);

// The error, of which waiting may be the cure.
absl::Status not_visible_yet(absl::Status status);

// Reads what is said to be there: again and again, up to `within`, while that is not visible. The last status, which says how long
// it has waited.
absl::Status when_visible(absl::FunctionRef<absl::Status()> read, Duration within = kVisibleWithin);

}  // namespace muster::trainer

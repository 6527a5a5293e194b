// Exchanges texts between the ranks of a process group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Returns the text of rank `root` on all ranks; `text` is ignored on other ranks. Returns the
// errors of the group.
absl::StatusOr<std::string> broadcast_text(ProcessGroup& group, std::string_view text, int root,
                                           std::string_view name);
// Returns the texts of all ranks in rank order on the first rank, and an empty vector on all other
// ranks. Returns the errors of the group.
absl::StatusOr<std::vector<std::string>> gather_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view name);

}  // namespace muster::trainer

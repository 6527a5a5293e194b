// Exchanges texts between the ranks of a process group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Returns the root's text on all ranks; the text of other ranks is ignored. Errors are the group's.
absl::StatusOr<std::string> broadcast_text(ProcessGroup& group, std::string_view text, int root,
                                           std::string_view name);
// Returns every rank's text, in rank order, on the first rank; an empty vector on the others.
absl::StatusOr<std::vector<std::string>> gather_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view name);

}  // namespace muster::trainer

// Texts between the ranks of a process group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// The root's text, on all ranks; the others' is not looked at. Errors are the group's.
absl::StatusOr<std::string> broadcast_text(ProcessGroup& group, std::string_view text, int root,
                                           std::string_view name);
// Every rank's text on the first rank, in their order; none on the others.
absl::StatusOr<std::vector<std::string>> gather_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view name);

}  // namespace muster::trainer

// Roles, and what a token permits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/records/caller.h"

namespace muster::coordinator {

// From kViewer on, each role includes the preceding ones; a worker's token only opens a worker's
// stream.
enum class Role { kWorker, kViewer, kSubmitter, kAdmin };
std::string_view name_of(Role role);

// The rights of a token.
struct TokenGrant {
  Role role = Role::kWorker;
  Caller caller{};
  // The token is valid before this Unix time; 0: it does not expire.
  int64_t expires_unix_s = 0;
  // Patterns of fnmatch(3) of the nodes as which a worker may register; empty: all.
  std::vector<std::string> nodes{};

  friend bool operator==(const TokenGrant&, const TokenGrant&) = default;
};

// Returns whether `text` can be the name of a person or a team: 1 to kNameBytesMax visible
// characters without a comma.
bool is_person_or_team(std::string_view text);

}  // namespace muster::coordinator

#include "trainer_core/group_peers.h"

#include "trainer_core/group_texts.h"

namespace muster::trainer {
namespace {

constexpr char kName[] = "checkpoint";

}  // namespace

GroupPeers::GroupPeers(ProcessGroups& groups, const GroupAxes& axes, int lane)
    : group_(groups.of(axes, lane)), members_(groups.mesh().group(groups.rank(), axes)) {}

absl::StatusOr<std::vector<std::string>> GroupPeers::gather(std::string_view mine) {
  return gather_texts(group_, mine, kName);
}

absl::StatusOr<std::string> GroupPeers::share(std::string_view leaders) {
  return broadcast_text(group_, leaders, 0, kName);
}

}  // namespace muster::trainer

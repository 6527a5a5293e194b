#include "trainer_core/rank/group_peers.h"

#include "trainer_core/comm/group_texts.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

// The ranks with the same data coordinate.
constexpr GroupAxes kWriterAxes = {.axes = AxisSet::all().without(MeshAxis::kData)};

}  // namespace

GroupPeers::GroupPeers(ProcessGroups& groups, const GroupAxes& axes, int channel,
                       std::string_view name)
    : group_(groups.of(axes, channel)),
      name_(name),
      members_(groups.mesh().group(groups.rank(), axes)) {}

GroupPeers GroupPeers::of_all(ProcessGroups& groups, int channel, std::string_view name) {
  return {groups, {.axes = AxisSet::all()}, channel, name};
}

std::optional<GroupPeers> GroupPeers::of_writers(ProcessGroups& groups, int channel,
                                                 std::string_view name) {
  if (!is_checkpoint_writer(groups.mesh(), groups.rank()) ||
      groups.mesh().group_size(kWriterAxes) == 1)
    return std::nullopt;
  return GroupPeers(groups, kWriterAxes, channel, name);
}

absl::StatusOr<std::vector<std::string>> GroupPeers::gather(std::string_view mine) {
  return gather_texts(group_, mine, name_);
}

absl::StatusOr<std::string> GroupPeers::share(std::string_view leader_text) {
  return broadcast_text(group_, leader_text, 0, name_);
}

}  // namespace muster::trainer

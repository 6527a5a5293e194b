// Implements the peers of a checkpoint (checkpoint/checkpoint_peers.h) by a process group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/checkpoint/checkpoint_peers.h"
#include "trainer_core/comm/process_groups.h"

namespace muster::trainer {

// The members of a group as checkpoint peers. Called on the thread of the group only.
class GroupPeers : public CheckpointPeers {
 public:
  // Uses this rank's group along `axes` on `channel`. Its collectives have the name `name` on the
  // progress page. `groups` and the characters of `name` must outlive this object.
  GroupPeers(ProcessGroups& groups, const GroupAxes& axes, int channel,
             std::string_view name = "checkpoint");
  // Returns the peers for all ranks of the job.
  static GroupPeers of_all(ProcessGroups& groups, int channel, std::string_view name);
  // Returns the peers for the ranks that save together with this one; nullopt if this rank saves
  // alone or does not save.
  static std::optional<GroupPeers> of_writers(ProcessGroups& groups, int channel,
                                              std::string_view name = "checkpoint");

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int world_rank(int rank) const override { return members_[static_cast<size_t>(rank)]; }

  absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) override;
  absl::StatusOr<std::string> share(std::string_view leader_text) override;

 private:
  ProcessGroup& group_;
  std::string_view name_;
  std::vector<int32_t> members_;
};

}  // namespace muster::trainer

// The peers of a checkpoint (checkpoint/checkpoint_peers.h) as a process group that exchanges
// texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/checkpoint/checkpoint_peers.h"
#include "trainer_core/comm/process_groups.h"

namespace muster::trainer {

// Called on one thread at a time, the thread of the group.
class GroupPeers : public CheckpointPeers {
 public:
  // This rank's group of `axes` on `channel`. Its collectives appear as `name` on the progress
  // page. `groups` and `name`'s characters outlive this object.
  GroupPeers(ProcessGroups& groups, const GroupAxes& axes, int channel,
             std::string_view name = "checkpoint");
  // All ranks of the job.
  static GroupPeers of_all(ProcessGroups& groups, int channel, std::string_view name);
  // The ranks that save with this one; nullopt if the rank saves alone, or does not save.
  static std::optional<GroupPeers> of_writers(ProcessGroups& groups, int channel,
                                              std::string_view name = "checkpoint");

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int world_rank(int rank) const override { return members_[static_cast<size_t>(rank)]; }

  absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) override;
  absl::StatusOr<std::string> share(std::string_view leaders) override;

 private:
  ProcessGroup& group_;
  std::string_view name_;
  std::vector<int32_t> members_;
};

}  // namespace muster::trainer

// All process groups of one rank, by the axes of the mesh along which their members differ.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/group_lanes.h"
#include "common/mesh.h"
#include "common/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Lanes of a rank: each is one thread's at a time, and all that is said in one is in one order. Two uses of one lane meet where their
// groups have the same members, as they have on a mesh of one axis, whatever axes they were asked for.
constexpr int kComputeLane = 0;  // what the computation waits for where it stands
constexpr int kStreamLane = 1;   // what runs beside it
constexpr int kRingLane = 2;     // of attention's ring
constexpr int kStageLane = 3;    // and the next two: of messages between stages
constexpr int kCheckpointLane =
    kFirstBackgroundLane;      // of whoever saves or restores; from here on never NCCL's
constexpr int kLeaveLane = 7;  // of whoever leaves for the rank
constexpr int kLocalLane = 8;  // of local checkpoints

// The most thread blocks that a kernel of NCCL may have, so that all kernels which a rank of `mesh` has at one time find room on a device of so
// many multiprocessors, each of which a block may fill: who waits for a peer there must not keep out what the peer waits for. There is one
// of a lane, and of messages between stages one of each direction. 0: NCCL has none that are larger.
int nccl_blocks_max(int multiprocessors, const Mesh& mesh);

// Groups are made when they are first asked for, which takes no message, and live as long as this object. Any thread; each group is
// one thread's at a time.
class ProcessGroups {
 public:
  // The mesh has the transport's ranks. `page` may be null; it outlives the groups, and so does `memory`, that of the numbers which groups
  // are given beside the host's: what lies on a device is staged (staged_group.h).
  ProcessGroups(std::shared_ptr<Transport> transport, const Mesh& mesh, ProgressWriter* page,
                const DeviceMemory& memory = host_memory());

  // The group of this rank along `axes`, "fsdp+context"; axes of one rank are left out. Groups of different lanes have the same members and nothing else in
  // common, so two threads may use them at once; lane 1 is "fsdp+context#1".
  ProcessGroup& of(const GroupAxes& axes, int lane = kComputeLane);
  // All ranks.
  ProcessGroup& world();
  // All ranks, whatever mesh each of them has: for what is said before that is known to be one.
  ProcessGroup& everyone();

  // Groups that are made from here on bring a device's numbers together by NCCL. On all ranks at the same place.
  void use_nccl(const NcclOptions& options);
  // The groups of kComputeLane, those that there are and those to come, follow it (ProcessGroup::follow).
  void follow(const std::shared_ptr<DeviceQueue>& computation);
  // Until what these have been called for is done; the first error, with which NCCL's groups of all lanes end.
  absl::Status finish();

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return transport_->rank(); }

  // Each group that was asked for, in the order of axes and lanes.
  void for_each(const std::function<void(const ProcessGroup&)>& visit) const;
  // What this rank has sent through all groups.
  SentBytes sent() const;
  // How long it has been in collectives of a lane's groups.
  Duration busy(int lane) const;

  void abort();
  // Transport's.
  void isolate_channels() { transport_->isolate_channels(); }

 private:
  using Key = std::pair<GroupAxes, int>;

  std::unique_ptr<ProcessGroup> make(const GroupAxes& axes, int lane) const;

  std::shared_ptr<Transport> transport_;
  Mesh mesh_;
  ProgressWriter* page_;
  const DeviceMemory& memory_;
  NcclOptions nccl_;
  std::shared_ptr<DeviceQueue> computation_;
  mutable std::mutex mutex_;  // guards the groups
  std::map<Key, std::unique_ptr<ProcessGroup>> groups_;
  std::unique_ptr<ProcessGroup> everyone_;  // null until it is asked for
};

}  // namespace muster::trainer

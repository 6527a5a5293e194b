// All process groups of one rank, identified by the mesh axes along which their members differ.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/group_channels.h"
#include "common/mesh.h"
#include "common/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Channels of a rank. Groups of the same ranks on different channels are independent; each opens a
// Channel of its own. One thread at a time uses a channel, and its collectives have one order. On a
// mesh of one axis all groups have the same members, so two uses of one channel then share a group,
// whichever axes they name.
constexpr int kComputeChannel = 0;  // in the computation's own order
constexpr int kOverlapChannel = 1;  // beside the computation (CommStream)
constexpr int kRingChannel = 2;     // attention's ring
constexpr int kStageChannel = 3;    // and the next two: messages between stages
// saves and restores; from here on never NCCL
constexpr int kCheckpointChannel = kFirstBackgroundChannel;
constexpr int kLeaveChannel = 7;  // agreement on leaving
constexpr int kLocalChannel = 8;  // local checkpoints

// Returns the maximum of thread blocks per NCCL kernel such that all kernels that a rank of `mesh`
// runs at once fit on a device with that many multiprocessors, each of which one block may occupy.
// Otherwise a kernel that waits for a peer could keep out the kernel that the peer waits for. There
// is one kernel per channel, and one per direction for messages between stages. Returns 0 if NCCL
// has no larger kernels.
int nccl_blocks_max(int multiprocessors, const Mesh& mesh);

// Creates each group at its first use, without sending a message; groups live as long as this
// object. Thread-safe; each group is used by one thread at a time.
class ProcessGroups {
 public:
  // `mesh` has as many ranks as the transport. `page` (may be null) and `memory` must outlive the
  // groups. `memory` is the device memory of buffers that groups receive besides host buffers;
  // device buffers are staged (staged_group.h).
  ProcessGroups(std::shared_ptr<Transport> transport, const Mesh& mesh, ProgressWriter* page,
                const DeviceMemory& memory = host_memory());

  // Returns this rank's group along `axes`, "fsdp+context"; axes of one rank are left out. Groups
  // of different channels have the same members but share nothing else, so different threads may
  // use them at once. On channel 1 the name is "fsdp+context#1".
  ProcessGroup& of(const GroupAxes& axes, int channel = kComputeChannel);
  // Returns the group of all ranks.
  ProcessGroup& world();
  // Returns a group of all ranks that does not depend on the mesh: used before all ranks are known
  // to have the same mesh.
  ProcessGroup& everyone();

  // Makes groups that are created from now on use NCCL for device buffers. Called at the same point
  // on all ranks.
  void use_nccl(const NcclOptions& options);
  // Makes all current and future groups of kComputeChannel follow `computation`
  // (ProcessGroup::follow).
  void follow(const std::shared_ptr<DeviceQueue>& computation);
  // Blocks until the collectives of these groups are done. Returns the first error, which ends the
  // NCCL groups of all channels.
  absl::Status finish();

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return transport_->rank(); }

  // Visits each existing group in the order of axes and channels.
  void for_each(const std::function<void(const ProcessGroup&)>& visit) const;
  // Returns the bytes that this rank has sent through all groups.
  SentBytes sent() const;
  // Returns the time that the rank has spent in collectives of a channel's groups.
  Duration busy(int channel) const;

  void abort();
  // See Transport::isolate_channels().
  void isolate_channels() { transport_->isolate_channels(); }

 private:
  using Key = std::pair<GroupAxes, int>;

  std::unique_ptr<ProcessGroup> make(const GroupAxes& axes, int channel) const;

  std::shared_ptr<Transport> transport_;
  Mesh mesh_;
  ProgressWriter* page_;
  const DeviceMemory& memory_;
  NcclOptions nccl_;
  std::shared_ptr<DeviceQueue> computation_;
  mutable std::mutex mutex_;  // guards the groups
  std::map<Key, std::unique_ptr<ProcessGroup>> groups_;
  std::unique_ptr<ProcessGroup> everyone_;  // null until everyone() is called
};

}  // namespace muster::trainer

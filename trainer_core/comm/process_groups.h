// The process groups of a rank. A group is identified by the mesh axes along which its members
// differ.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/job/group_channels.h"
#include "common/job/mesh.h"
#include "common/progress/progress_page.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct GroupSpec;  // transport_group.h

// The channels of a rank. Groups with the same members on different channels are independent, so
// different threads can use them at once. A channel is used by one thread at a time, and its
// collectives have the same order on all ranks.
constexpr int kComputeChannel = 0;  // in the order of the computation
constexpr int kOverlapChannel = 1;  // concurrently with the computation (CommStream)
constexpr int kRingChannel = 2;     // ring attention
constexpr int kStageChannel = 3;    // messages between stages: this channel and the next two
// Saves and restores of checkpoints. This channel and all later ones never use NCCL.
constexpr int kCheckpointChannel = kFirstBackgroundChannel;
constexpr int kLeaveChannel = 7;  // agreement of the ranks on leaving
constexpr int kLocalChannel = 8;  // local checkpoints

// Returns the largest number of thread blocks per NCCL kernel at which all NCCL kernels that a rank
// of `mesh` runs at once fit on a device. Assumes that a block occupies a multiprocessor. Without
// this bound, a kernel that waits for a peer could prevent the start of the kernel for which the
// peer waits. There is one kernel per channel, and one per direction for messages between stages.
// Returns 0 (no bound) if even NCCL's largest kernels fit.
int nccl_blocks_max(int multiprocessors, const Mesh& mesh);

// The groups of one rank. A group is created at its first use, without sending a message, and lives
// as long as this object. Thread-safe, but each group is used by one thread at a time.
class ProcessGroups {
 public:
  // Requires that `mesh` has as many ranks as the transport. `page`, which may be null, and
  // `memory` must outlive the groups. Collectives accept buffers in host memory and in `memory`;
  // those in device memory are copied through the host (staged_group.h).
  ProcessGroups(std::shared_ptr<Transport> transport, const Mesh& mesh, ProgressWriter* page,
                const DeviceMemory& memory = host_memory());

  // Returns the group of the ranks that differ from this rank along `axes` only. Its name is
  // "fsdp+context" or, on channel 1, "fsdp+context#1"; axes of degree 1 are omitted, so different
  // `axes` can give the same group.
  ProcessGroup& of(const GroupAxes& axes, int channel = kComputeChannel);
  // Returns the group of all ranks.
  ProcessGroup& world();
  // Returns a group of all ranks that does not depend on the mesh. It is used before the ranks have
  // checked that they have the same mesh.
  ProcessGroup& everyone();

  // Makes all groups that are created later use NCCL for device buffers. All ranks must call it at
  // the same point.
  void use_nccl(const NcclOptions& options);
  // Creates a group of a channel.
  using GroupFactory =
      std::function<std::unique_ptr<ProcessGroup>(const GroupSpec& spec, int channel)>;
  // Makes `factory` create all groups that are created later. Only for ranks that send nothing: the
  // forecast of a step's time records its collectives. everyone() is not affected.
  void use_factory(GroupFactory factory);
  // Orders the collectives of device buffers in the queue `computation` (ProcessGroup::follow), for
  // all existing and later groups of kComputeChannel.
  void follow(const std::shared_ptr<DeviceQueue>& computation);
  // Blocks until the collectives of the groups of kComputeChannel are done. Returns the first
  // error, after which the NCCL groups of all channels fail.
  absl::Status finish();

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return transport_->rank(); }

  // Calls `visit` for each existing group, in the order of axes and channels.
  void for_each(const std::function<void(const ProcessGroup&)>& visit) const;
  // Returns the bytes that this rank has sent through all groups.
  SentBytes sent() const;
  // Returns the time that this rank has spent in collectives of the groups of a channel.
  Duration busy(int channel) const;

  // Makes all collectives fail (ProcessGroup::abort).
  void abort();
  // Calls Transport::isolate_channels().
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
  GroupFactory factory_;      // empty: groups over the transport
  mutable std::mutex mutex_;  // guards the groups
  std::map<Key, std::unique_ptr<ProcessGroup>> groups_;
  std::unique_ptr<ProcessGroup> everyone_;  // null until everyone() is called
};

}  // namespace muster::trainer

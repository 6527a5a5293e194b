#include "trainer_core/comm/process_groups.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/staged_group.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

// Returns the axes without those of degree 1, so that groups with the same members have the same
// name.
GroupAxes without_trivial_axes(const GroupAxes& axes, const Mesh& mesh) {
  GroupAxes rest;
  for (int i = 0; i < kMeshAxisCount; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    if (!axes.axes.contains(axis) || mesh.degree(axis) == 1) continue;
    const int32_t run = axis == MeshAxis::kTensor ? axes.tensor_run : 0;
    if (run == 1) continue;
    rest.axes = rest.axes.with(axis);
    if (run != mesh.degree(axis)) rest.tensor_run = run;
    if (axis == MeshAxis::kPipeline)
      rest.pipeline_ends = axes.pipeline_ends && mesh.degree(axis) > 2;
  }
  return rest;
}

}  // namespace

int nccl_blocks_max(int multiprocessors, const Mesh& mesh) {
  constexpr int kNcclsOwnMax = 64;  // MAXCHANNELS
  int kernels = 2;                  // those of kComputeChannel and kOverlapChannel
  if (mesh.degree(MeshAxis::kContext) > 1) ++kernels;
  if (mesh.degree(MeshAxis::kPipeline) > 1) kernels += 2;
  // Hopper starts blocks in clusters of four, so some multiprocessors of a GPC get no block.
  const int usable = multiprocessors - multiprocessors / 8;
  const auto room = static_cast<unsigned>(std::max(usable / kernels, 1));
  // Kernels that send and receive round up to a power of two.
  const auto blocks = static_cast<int>(std::bit_floor(room));
  return blocks < kNcclsOwnMax ? blocks : 0;
}

ProcessGroups::ProcessGroups(std::shared_ptr<Transport> transport, const Mesh& mesh,
                             ProgressWriter* page, const DeviceMemory& memory)
    : transport_(std::move(transport)), mesh_(mesh), page_(page), memory_(memory) {
  MUSTER_CHECK(mesh.ranks() == transport_->size())
      << "a mesh of " << mesh.ranks() << " for a world of " << transport_->size();
}

ProcessGroup& ProcessGroups::of(const GroupAxes& axes, int channel) {
  const std::lock_guard lock(mutex_);
  const GroupAxes needed = without_trivial_axes(axes, mesh_);
  auto& group = groups_[{needed, channel}];
  if (group == nullptr) {
    group = make(needed, channel);
    if (channel == kComputeChannel) group->follow(computation_);
  }
  return *group;
}

ProcessGroup& ProcessGroups::world() { return of({.axes = AxisSet::all()}); }

ProcessGroup& ProcessGroups::everyone() {
  const std::lock_guard lock(mutex_);
  if (everyone_ == nullptr)
    everyone_ = make_world_group(transport_, "everyone", transport_->size() > 1 ? page_ : nullptr);
  return *everyone_;
}

void ProcessGroups::use_nccl(const NcclOptions& options) {
  const std::lock_guard lock(mutex_);
  nccl_ = options;
  nccl_.failure = std::make_shared<FirstFailure>();  // ranks may have the same options
}

void ProcessGroups::use_factory(GroupFactory factory) {
  const std::lock_guard lock(mutex_);
  factory_ = std::move(factory);
}

void ProcessGroups::follow(const std::shared_ptr<DeviceQueue>& computation) {
  const std::lock_guard lock(mutex_);
  computation_ = computation;
  for (const auto& [key, group] : groups_)
    if (key.second == kComputeChannel) group->follow(computation_);
}

absl::Status ProcessGroups::finish() {
  std::vector<ProcessGroup*> groups;
  {
    // Released before the wait, because other threads may call abort().
    const std::lock_guard lock(mutex_);
    for (const auto& [key, group] : groups_)
      if (key.second == kComputeChannel) groups.push_back(group.get());
  }
  absl::Status status;
  for (ProcessGroup* const group : groups) status.Update(group->finish());
  return status;
}

void ProcessGroups::abort() {
  transport_->abort();
  const std::lock_guard lock(mutex_);
  if (nccl_.api == nullptr) return;
  for (const auto& [key, group] : groups_) group->abort();
}

std::unique_ptr<ProcessGroup> ProcessGroups::make(const GroupAxes& axes, int channel) const {
  GroupSpec spec{.name = axes.axes.to_string(), .members = {}, .nodes = {}};
  if (axes.tensor_run > 0) absl::StrAppend(&spec.name, "/", axes.tensor_run);
  if (axes.pipeline_ends) spec.name += "/ends";
  if (channel > 0) absl::StrAppend(&spec.name, "#", channel);
  for (const int32_t member : mesh_.group(rank(), axes)) {
    spec.members.push_back(member);
    spec.nodes.push_back(mesh_.node_of(member));
  }
  if (factory_) return factory_(spec, channel);
  // A group of one sends nothing and needs no entry on the page.
  ProgressWriter* const page = spec.members.size() > 1 ? page_ : nullptr;
  const size_t members = spec.members.size();
  const auto lowest = static_cast<uint32_t>(std::ranges::min(spec.members));
  auto group = staged_group(make_group(transport_, std::move(spec), page), memory_);
  // Ranks that save or leave send host buffers, and must distinguish the loss of a peer from
  // failures of other groups.
  if (nccl_.api == nullptr || members == 1 || channel >= kCheckpointChannel) return group;
  return nccl_group(std::move(group), nccl_, memory_, page, lowest);
}

void ProcessGroups::for_each(const std::function<void(const ProcessGroup&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, group] : groups_) visit(*group);
  if (everyone_ != nullptr) visit(*everyone_);
}

Duration ProcessGroups::busy(int channel) const {
  const std::lock_guard lock(mutex_);
  Duration busy{};
  for (const auto& [key, group] : groups_)
    if (key.second == channel) busy += group->busy();
  return busy;
}

SentBytes ProcessGroups::sent() const {
  SentBytes all;
  for_each([&](const ProcessGroup& group) {
    for (uint32_t kind = 0; kind <= static_cast<uint32_t>(CollectiveKind::kSendRecv); ++kind) {
      const SentBytes part = group.sent(static_cast<CollectiveKind>(kind));
      all.total += part.total;
      all.across_nodes += part.across_nodes;
    }
  });
  return all;
}

}  // namespace muster::trainer

#include "trainer_core/startup/group_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <span>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/time/time.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/world.h"

namespace muster::trainer {
namespace {

// Large enough for the full bandwidth of networks, small enough for 1 Gbit/s within a second.
constexpr size_t kHostElements = size_t{4} << 20;
constexpr size_t kDeviceElements = size_t{64} << 20;
constexpr int kTimedRoundsMax = 1000;
// Processes of a check start within seconds; a peer that does not answer for this long has failed.
// Each rank connects to all others.
constexpr std::chrono::milliseconds kGroupTimeout(20'000);
constexpr std::chrono::milliseconds kGroupTimeoutPerRank(50);
constexpr size_t kSumPeriod = 31;

float value_of(size_t index, int rank) {
  return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % kSumPeriod);
}

class AllReduceTest {
 public:
  AllReduceTest(Backend& backend, ProcessGroup& group)
      : memory_(backend.memory()),
        ops_(backend.ops()),
        group_(group),
        host_(memory_.is_host() ? kHostElements : kDeviceElements),
        room_(memory_.allocate(host_.size() * sizeof(float))) {
    for (size_t i = 0; i < kSumPeriod; ++i) {
      for (int rank = 0; rank < group.size(); ++rank) expected_[i] += value_of(i, rank);
    }
  }

  // Runs an all-reduce and verifies each sum.
  absl::Status verify() {
    for (size_t i = 0; i < host_.size(); ++i) host_[i] = value_of(i, group_.rank());
    memory_.upload(host_.data(), room_.get(), host_.size() * sizeof(float));
    if (const auto seconds = run(); !seconds.ok()) return seconds.status();
    memory_.download(room_.get(), host_.data(), host_.size() * sizeof(float));
    size_t wrong = 0;
    for (size_t i = 0; i < host_.size(); ++i) wrong += host_[i] != expected_[i % kSumPeriod];
    if (wrong == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrFormat("%d of %d sums of an all-reduce are wrong", wrong, host_.size()));
  }

  // Runs an all-reduce of whatever the buffer holds, and returns its seconds.
  absl::StatusOr<double> run() {
    if (auto status = group_.barrier("check"); !status.ok()) return status;
    const Instant began = monotonic_now();
    const BufferView data(room_.get(), host_.size(), DType::kF32);
    if (auto status = group_.all_reduce(data, "check"); !status.ok()) return status;
    if (auto status = group_.finish(); !status.ok()) return status;
    ops_.synchronize();
    return to_seconds(monotonic_now() - began);
  }

  // The bytes that each rank sends.
  double bytes() const {
    const double n = group_.size();
    return 2 * (n - 1) / n * static_cast<double>(host_.size() * sizeof(float));
  }

 private:
  const DeviceMemory& memory_;
  Ops& ops_;
  ProcessGroup& group_;
  std::vector<float> host_;
  const std::shared_ptr<void> room_;
  std::array<float, kSumPeriod> expected_{};
};

// Returns the largest value of all ranks.
absl::StatusOr<float> largest(ProcessGroup& group, float value) {
  std::array<float, 1> all = {value};
  if (auto status = group.all_reduce_max(std::span(all), "largest"); !status.ok()) return status;
  return all[0];
}

// Makes device buffers use NCCL if every rank has it.
absl::Status choose_transport(Backend& backend, std::chrono::milliseconds timeout,
                              ProcessGroups& groups) {
  if (backend.memory().is_host()) return absl::OkStatus();
  const auto api = open_nccl();
  const auto missing = largest(groups.everyone(), api.ok() ? 0.0F : 1.0F);
  if (!missing.ok()) return missing.status();
  if (*missing == 0) groups.use_nccl({.api = *api, .connect_timeout = timeout, .timeout = timeout});
  return absl::OkStatus();
}

}  // namespace

absl::Status test_group(const std::shared_ptr<Backend>& backend, const GroupSeat& seat,
                        double seconds, DeepMeasurements& measured) {
  const std::chrono::milliseconds timeout =
      kGroupTimeout + seat.nodes * seat.devices * kGroupTimeoutPerRank;
  WorldOptions world;
  world.gloo = {.rank = seat.node * seat.devices + seat.device,
                .size = seat.nodes * seat.devices,
                .rendezvous = seat.rendezvous,
                .bind_address = seat.bind_address,
                .scope = absl::StrCat("0/", seat.id, "/"),
                .connect_timeout = timeout,
                .timeout = timeout};
  // Only the processes of one node may share memory: the network between nodes is tested.
  world.host = seat.devices == 1 ? "" : absl::StrCat(host_identity(), "/", seat.node);
  auto transport = connect_world(world);
  if (!transport.ok()) return transport.status();
  MeshShape mesh;
  mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = world.gloo.size;
  ProcessGroups groups(*std::move(transport), mesh_of(mesh), nullptr, backend->memory());
  if (auto status = choose_transport(*backend, timeout, groups); !status.ok()) return status;
  AllReduceTest test(*backend, groups.world());
  // The first all-reduce opens connections. Filling and verifying take longer than an all-reduce
  // between GPUs, so only the first and the last one are verified.
  if (auto status = test.verify(); !status.ok()) return status;
  const Instant began = monotonic_now();
  if (const auto took = test.run(); !took.ok()) return took.status();
  const auto slowest =
      largest(groups.world(), static_cast<float>(to_seconds(monotonic_now() - began)));
  if (!slowest.ok()) return slowest.status();
  const int rounds =
      std::clamp(static_cast<int>(seconds / std::max(*slowest, 1e-6F)), 1, kTimedRoundsMax);
  std::vector<double> rates;
  for (int i = 0; i < rounds; ++i) {
    const auto took = test.run();
    if (!took.ok()) return took.status();
    rates.push_back(test.bytes() / *took * 1e-9);
  }
  if (auto status = test.verify(); !status.ok()) return status;
  measured.push_back({"all_reduce", median_of_measured(std::move(rates)), "GB/s"});
  // No rank ends while another one still needs it.
  return groups.everyone().barrier("end");
}

}  // namespace muster::trainer

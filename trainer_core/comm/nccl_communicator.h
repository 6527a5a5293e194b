// One rank's end of a NCCL communicator, and the queue of its collectives. Internal to nccl_group.cc. One thread at a time, but abort().
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include "common/time.h"
#include "trainer_core/comm/nccl_group.h"

namespace muster::trainer {

class NcclEnd {
 public:
  using Call = absl::FunctionRef<NcclResult(NcclCommunicator communicator, void* stream)>;

  NcclEnd(NcclOptions options, const DeviceMemory& memory)
      : options_(std::move(options)), memory_(memory) {}
  // Waits a moment for what peers still want of it; after an error or abort() it does not.
  ~NcclEnd();
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  bool exists() const { return communicator_ != nullptr; }
  // Together with all ranks of `group`, which has met before. An error names the ranks that differ, or that have no communicator.
  absl::Status connect(ProcessGroup& group);
  // Calls and waits. Unavailable after an error of NCCL's or abort(), DeadlineExceeded when nothing comes in time; then there is no
  // communicator any more.
  absl::Status run(Call call);
  // Makes the current and every later run() fail. Any thread.
  void abort() { aborted_ = true; }

 private:
  absl::StatusOr<NcclUniqueId> share_id(ProcessGroup& group);
  NcclResult init(const NcclUniqueId& id, int ranks, int rank);
  // Who has no communicator and why, of what init() has come to on each rank; the same on all of them.
  absl::Status judge(const ProcessGroup& group, std::span<const int32_t> found) const;
  // Until `done` and no call is in progress any more: then success, or NCCL's error, kNcclInProgress when the time is over, and another
  // number after abort().
  NcclResult wait(NcclResult called, Duration timeout, absl::FunctionRef<bool()> done) const;
  std::string text_of(NcclResult result) const;
  absl::Status give_up(absl::Status status);

  const NcclOptions options_;
  const DeviceMemory& memory_;
  std::unique_ptr<DeviceQueue> queue_;
  NcclCommunicator communicator_ = nullptr;
  std::atomic<bool> aborted_{false};
  absl::Status broken_;
};

}  // namespace muster::trainer

// One rank's end of a NCCL communicator, and the queue of its collectives. Internal to nccl_group.cc. One thread at a time calls; another
// may await() what was called, and any may abort().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
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

  // Whether connect() has been called and has succeeded.
  bool is_connected() const { return connected_; }
  // Together with all ranks of `group`, which has met before. An error names the ranks that differ, or that have no communicator: Unavailable
  // or DeadlineExceeded where this rank has lost others, FailedPrecondition where its own library, environment or network is why.
  absl::Status connect(ProcessGroup& group);
  // Calls, and returns when NCCL has handed it over to the queue. It fails as await() does.
  absl::Status launch(Call call);
  // Until the device has come to `mark`. Unavailable after an error of NCCL's, abort(), or another group's failure, DeadlineExceeded when
  // it has not come there in time; then there is no communicator any more: what the device still had to do of its calls it ends without
  // result, and every call and wait fails with the first of these errors.
  enum class Manner : uint8_t { kEager, kPatient };  // asks without a pause at first, or never
  absl::Status await(const DeviceMark& mark, Duration timeout, Manner manner);
  // Of connected ends.
  DeviceQueue& queue() { return *queue_; }
  // Makes what is waited for and every later call fail. Any thread.
  void abort() { aborted_ = true; }

 private:
  absl::StatusOr<NcclUniqueId> share_id(ProcessGroup& group);
  absl::Status no_id(const ProcessGroup& group, NcclResult found) const;
  NcclResult init(const NcclUniqueId& id, int ranks, int rank);
  // Who has no communicator and why, of what init() has come to on each rank.
  absl::Status judge(const ProcessGroup& group, std::span<const int32_t> found) const;
  // What NCCL says of the communicator; kGone where there is none any more.
  NcclResult ask() const;
  bool is_aborted() const { return aborted_ || options_.failure->is_there(); }
  // Until `done` says so of what NCCL says: then success, or NCCL's error, kNcclInProgress when the time is over, and another number after
  // abort(), or without a communicator.
  NcclResult wait(NcclResult called, Duration timeout, Manner manner,
                  absl::FunctionRef<bool(NcclResult found)> done) const;
  // Of what a wait of so long has come to.
  absl::Status conclude(NcclResult result, Duration timeout);
  std::string text_of(NcclResult result) const;
  // The first status that this is called with.
  absl::Status give_up(absl::Status status);

  const NcclOptions options_;
  const DeviceMemory& memory_;
  std::unique_ptr<DeviceQueue> queue_;
  int version_ = 0;  // of all ranks' libraries, once they have been compared
  bool connected_ = false;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // guards what follows, and NCCL's calls of it
  NcclCommunicator communicator_ = nullptr;
  absl::Status broken_;
};

}  // namespace muster::trainer

// One rank's end of an NCCL communicator, and the device queue of its collectives. Internal to
// nccl_group.cc. One thread at a time calls; another may await() enqueued work, and any may
// abort().
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
  // Waits briefly for operations that peers still need; after an error or abort() it does not wait.
  ~NcclEnd();
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  // Returns whether connect() has succeeded.
  bool is_connected() const { return connected_; }
  // Creates the communicator together with all ranks of `group`, which must be connected already.
  // The error names the ranks that differ or that have no communicator: Unavailable or
  // DeadlineExceeded if this rank has lost peers, FailedPrecondition if its own library,
  // environment or network is the cause.
  absl::Status connect(ProcessGroup& group);
  // Enqueues `call` and returns once NCCL has accepted it. Fails as await() does.
  absl::Status launch(Call call);
  // Blocks until the device has reached `mark`. Returns Unavailable after an NCCL error, abort() or
  // another group's failure, and DeadlineExceeded if the device does not reach it in time. The
  // communicator is then destroyed: pending calls end without a result, and every later call and
  // wait fails with the first of these errors.
  enum class Manner : uint8_t { kEager, kPatient };  // poll without pausing at first, or never
  absl::Status await(const DeviceMark& mark, Duration timeout, Manner manner);
  // Requires a connected end.
  DeviceQueue& queue() { return *queue_; }
  // Makes current waits and all later calls fail. Any thread.
  void abort() { aborted_ = true; }

 private:
  absl::StatusOr<NcclUniqueId> share_id(ProcessGroup& group);
  absl::Status no_id(const ProcessGroup& group, NcclResult found) const;
  NcclResult init(const NcclUniqueId& id, int ranks, int rank);
  // Returns which ranks have no communicator and why, from the results of init() on each rank.
  absl::Status judge(const ProcessGroup& group, std::span<const int32_t> found) const;
  // Returns NCCL's asynchronous state of the communicator; kGone if it has been destroyed.
  NcclResult ask() const;
  bool is_aborted() const { return aborted_ || options_.failure->is_there(); }
  // Polls NCCL's state until `done` accepts it. Returns success, NCCL's error, kNcclInProgress
  // after the timeout, or a distinct value after abort() or without a communicator.
  NcclResult wait(NcclResult called, Duration timeout, Manner manner,
                  absl::FunctionRef<bool(NcclResult found)> done) const;
  // Converts the result of a wait into a status.
  absl::Status conclude(NcclResult result, Duration timeout);
  std::string text_of(NcclResult result) const;
  // Returns the first status that was passed to this function.
  absl::Status give_up(absl::Status status);

  const NcclOptions options_;
  const DeviceMemory& memory_;
  std::unique_ptr<DeviceQueue> queue_;
  int version_ = 0;  // all ranks' library version, once compared
  bool connected_ = false;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // guards what follows, and NCCL's calls of it
  NcclCommunicator communicator_ = nullptr;
  absl::Status broken_;
};

}  // namespace muster::trainer

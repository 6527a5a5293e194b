// One rank's end of an NCCL communicator, and the device queue on which its collectives run.
// Internal to nccl_group.cc. Called by one thread at a time, except that a second thread may call
// await(), and any thread abort().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "trainer_core/comm/nccl_group.h"

namespace muster::trainer {

class NcclEnd {
 public:
  using Call = absl::FunctionRef<NcclResult(NcclCommunicator communicator, void* stream)>;

  NcclEnd(NcclOptions options, const DeviceMemory& memory)
      : options_(std::move(options)), memory_(memory) {}
  // Waits briefly for enqueued operations, which peers may still need. Does not wait after an error
  // or abort().
  ~NcclEnd();
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  // Returns whether connect() has succeeded.
  bool is_connected() const { return connected_; }
  // Creates the communicator together with all ranks of `group`, which exchanges the first
  // messages. An error contains the ranks that differ or that could not create a communicator.
  // Returns Unavailable or DeadlineExceeded if this rank has lost peers, and FailedPrecondition if
  // its own library, environment or network is the cause.
  absl::Status connect(ProcessGroup& group);
  // Enqueues `call` and returns once NCCL has accepted it. Returns the errors of await().
  absl::Status launch(Call call);
  // Blocks until the device has reached `mark`. kEager polls without a pause at first; kPatient
  // pauses between polls. Returns Unavailable after an error of NCCL, abort() or a failure of
  // another group, and DeadlineExceeded if the device does not reach the mark within `timeout`.
  // After an error the communicator is destroyed: pending calls end without a result, and every
  // later call and wait returns the first error.
  enum class Manner : uint8_t { kEager, kPatient };
  absl::Status await(const DeviceMark& mark, Duration timeout, Manner manner);
  // Returns the queue of the collectives. Requires is_connected().
  DeviceQueue& queue() { return *queue_; }
  // Makes current waits and all later calls fail. Thread-safe.
  void abort() { aborted_ = true; }

 private:
  absl::StatusOr<NcclUniqueId> share_id(ProcessGroup& group);
  absl::Status no_id(const ProcessGroup& group, NcclResult found) const;
  NcclResult init(const NcclUniqueId& id, int ranks, int rank);
  // Returns a status with the ranks that have no communicator, and why, from the results of init()
  // on all ranks.
  absl::Status judge(const ProcessGroup& group, std::span<const int32_t> found) const;
  // Returns the asynchronous state of the communicator (ncclCommGetAsyncError); kGone if it was
  // destroyed.
  NcclResult query() const;
  bool is_aborted() const { return aborted_ || options_.failure->exists(); }
  // Polls the state of NCCL until `done` returns true for it. Returns success, NCCL's error,
  // kNcclInProgress after the timeout, or a value of our own after abort() or without a
  // communicator.
  NcclResult wait(NcclResult called, Duration timeout, Manner manner,
                  absl::FunctionRef<bool(NcclResult found)> done) const;
  // Converts the result of a wait into a status.
  absl::Status conclude(NcclResult result, Duration timeout);
  std::string text_of(NcclResult result) const;
  // Destroys the communicator. Returns the status of the first call of this function.
  absl::Status give_up(absl::Status status);

  const NcclOptions options_;
  const DeviceMemory& memory_;
  std::unique_ptr<DeviceQueue> queue_;
  int version_ = 0;  // the library's version, once all ranks have compared theirs
  bool connected_ = false;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // guards the members below, and NCCL's calls with communicator_
  NcclCommunicator communicator_ = nullptr;
  absl::Status broken_;
};

}  // namespace muster::trainer

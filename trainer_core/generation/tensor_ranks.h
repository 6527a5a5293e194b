// The ranks of a model whose generation is divided by tensor parallelism: processes of this host,
// which communicate through shared memory. Rank 0 decides what is computed, and sends it to the
// others, the followers.
//
// A follower that ends makes every exchange of the others fail, and so does one that does not
// respond within limit_exchanges(). If rank 0 ends, for any reason, the kernel ends the followers.
// They ignore the signals that end a server, because rank 0 completes its requests first.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/model_config.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"
#include "trainer_core/generation/rank_processes.h"
#include "trainer_core/model/rank_part.h"

namespace muster::trainer {

// The time that rank 0 waits in an exchange of a step, of which each layer has two. They take
// milliseconds, but a machine may swap.
constexpr std::chrono::seconds kStepTime{60};

// Returns InvalidArgument with the first size of the model that `ranks` ranks cannot divide.
absl::Status check_tensor_ranks(const ModelConfig& model, int32_t ranks);

class TensorRanks {
 public:
  using Follow = absl::FunctionRef<absl::Status(std::unique_ptr<TensorRanks> own)>;

  // Starts `size` - 1 followers, as copies of this process, and connects all ranks. Returns rank 0.
  // A follower calls `follow` with its own object, and then ends without returning, also after an
  // exception. Returns Internal if the process has several threads, because a copy has only one,
  // and the error of a follower that ends before it has connected.
  static absl::StatusOr<std::unique_ptr<TensorRanks>> start(int size, Follow follow);
  // One rank of an existing world.
  explicit TensorRanks(std::shared_ptr<Transport> transport);
  // Rank 0: leaves the world, and waits for the followers to end.
  ~TensorRanks();
  TensorRanks(const TensorRanks&) = delete;
  TensorRanks& operator=(const TensorRanks&) = delete;

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  AxisCoordinate coordinate() const { return {rank(), size()}; }
  // Used by one thread at a time.
  ProcessGroup& group() { return *group_; }

  // Waits until all ranks have loaded the model, as long as they run. Returns the error `status` of
  // this rank at once. Else returns the error of another rank on rank 0, and Unavailable on others.
  absl::Status agree(const absl::Status& status);
  // Rank 0: limits the time of later exchanges, which return DeadlineExceeded then.
  void limit_exchanges(std::chrono::milliseconds limit) { transport_->limit_rounds(limit); }
  // Ends the current and all later exchanges with Unavailable. Thread-safe.
  void abort() { group_->abort(); }
  // Rank 0: returns an error if a follower has ended. See RankProcesses.
  absl::Status check() const { return followers_ ? followers_->check() : absl::OkStatus(); }
  absl::Status cause_of(const absl::Status& error) const {
    return followers_ ? followers_->cause_of(error) : error;
  }

 private:
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<ProcessGroup> group_;
  std::optional<RankProcesses> followers_;  // rank 0 of processes only
};

}  // namespace muster::trainer

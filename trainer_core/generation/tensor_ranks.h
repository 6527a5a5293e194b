// The ranks of a model whose generation is divided by tensor parallelism: processes of this host,
// which communicate through shared memory. Rank 0 decides what is computed, and sends it to the
// others, the followers.
//
// A follower that ends makes every exchange of the others fail. If rank 0 ends, for any reason, the
// kernel ends the followers. They ignore the signals that end a server, because rank 0 completes
// its requests first.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/model_config.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"
#include "trainer_core/model/rank_part.h"

namespace muster::trainer {

// The maximum number of ranks: those of one host.
constexpr int32_t kTensorRanksMax = 64;

// Returns InvalidArgument with the first size of the model that `ranks` ranks cannot divide.
absl::Status check_tensor_ranks(const ModelConfig& model, int32_t ranks);

class TensorRanks {
 public:
  using Follow = absl::FunctionRef<absl::Status(std::unique_ptr<TensorRanks> own)>;

  // Starts `size` - 1 followers, as copies of this process, and connects all ranks. Returns rank 0.
  // A follower calls `follow` with its own object, and then ends without returning. Requires that
  // the process has one thread.
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

  // Waits for the other ranks. Returns the error `status` of this rank, or else Unavailable if
  // another rank has one.
  absl::Status agree(const absl::Status& status);
  // Rank 0: returns Unavailable if a follower has ended.
  absl::Status check() const;

 private:
  std::unique_ptr<ProcessGroup> group_;
  std::vector<pid_t> followers_;  // rank 0 only
};

}  // namespace muster::trainer

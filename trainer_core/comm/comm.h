// The comm table: collectives of one process group. Implementations: `local` (ranks are threads of
// one process, for tests), `gloo` (processes over TCP); NCCL joins them with the CUDA backend.
//
// Every rank of a group calls the same collectives in the same order. A call returns when this
// rank's part is done. Each one is published on the rank's progress page (if one was given) before
// it starts and after it completes. Buffers are fp32 and may not overlap unless a method says so.
//
// Errors: Unavailable when a peer is gone or abort() was called, DeadlineExceeded after the group's
// timeout; the group is unusable afterwards. One thread at a time per object, except abort().
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;

  // Sums `data` over the group in place. The order of additions depends on the group's size alone,
  // so the result is bit-identical on all ranks and from run to run.
  virtual absl::Status all_reduce(std::span<float> data, std::string_view name) = 0;
  // Concatenates every rank's `input` (equal sizes) into `output` in rank order.
  virtual absl::Status all_gather(std::span<const float> input, std::span<float> output,
                                  std::string_view name) = 0;
  // Sums `input` over the group and leaves this rank's 1/size() slice in `output`.
  virtual absl::Status reduce_scatter(std::span<const float> input, std::span<float> output,
                                      std::string_view name) = 0;
  // Slice i of `input` goes to rank i; slice j of `output` came from rank j.
  virtual absl::Status all_to_all(std::span<const float> input, std::span<float> output,
                                  std::string_view name) = 0;
  virtual absl::Status broadcast(std::span<float> data, int root, std::string_view name) = 0;
  virtual absl::Status send(std::span<const float> data, int to, std::string_view name) = 0;
  virtual absl::Status recv(std::span<float> data, int from, std::string_view name) = 0;
  virtual absl::Status barrier(std::string_view name) = 0;

  // Makes the current and every later call of this rank fail with Unavailable. Any thread.
  virtual void abort() = 0;
};

}  // namespace muster::trainer

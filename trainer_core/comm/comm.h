// The collectives of one process group, which is a list of ranks of the world. make_group()
// (transport_group.h) implements them over any transport, between threads or processes.
// staged_group.h and nccl_group.h wrap such a group for buffers in device memory.
//
// Every rank of a group calls the same collectives in the same order with the same sizes. A call
// returns when this rank's part is done, or earlier if the group follows the computation's order
// (follow()). Each collective is published on the rank's progress page, if there is one, before it
// starts and after it completes. Buffers may not overlap unless a method permits it.
//
// Types: fp32 and bf16; int32 only for collectives that move data without adding. Sums are computed
// in fp32, in rank order, and rounded once, so a result is bit-identical on all ranks, from run to
// run and between transports.
//
// Bytes that a rank of n sends for S bytes of data. This is the minimum if all ranks send equally
// (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in
// MPICH"; NCCL-tests' PERFORMANCE.md):
//
//   all_reduce            2 (n-1)/n S      first sums each rank's slice, then gathers the sums
//   all_gather            (n-1) S          S: of one rank's input
//   reduce_scatter        (n-1)/n S        S: of one rank's input, all slices
//   all_to_all            (n-1)/n S        S: of one rank's input
//   broadcast             2 (n-1)/n S      from the root; (n-2)/n S from each other rank, in the
//                                          gathering of slices
//   send, recv            S, 0
//   barrier               4 (n-1) bytes
//
// If n does not divide S, slices differ by one element. A group with equally many ranks on each of
// m nodes sums inside each node before it sends to other nodes, and gathers from other nodes before
// it gathers inside. Bytes sent across nodes are then
//
//   all_reduce            2 (m-1)/n S      instead of 2 (m-1)/m S
//   all_gather            (m-1) S          instead of (m-1) n/m S
//   reduce_scatter        (m-1)/n S        instead of (m-1)/m S
//
// and bf16 partial sums cross nodes as fp32, which doubles the bytes of sums.
//
// Errors: Unavailable when a peer is gone or abort() was called; DeadlineExceeded, naming the
// silent ranks, after the transport's timeout. The transport is unusable afterwards, and its peers
// fail at once. One thread at a time per object, except abort(), sent() and busy(); different
// groups may be used by different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/progress_page.h"
#include "common/time.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/buffer_view.h"

namespace muster::trainer {

// Bytes that a rank has sent.
struct SentBytes {
  uint64_t total = 0;
  uint64_t across_nodes = 0;  // the part that went to other nodes

  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& name() const = 0;  // "fsdp+context"
  virtual int rank() const = 0;                 // within the group
  virtual int size() const = 0;

  // Sums `data` over the group in place.
  virtual absl::Status all_reduce(BufferView data, std::string_view name) = 0;
  // Stores the maximum of each element over the group in place; NaN if any rank's element is NaN.
  virtual absl::Status all_reduce_max(BufferView data, std::string_view name) = 0;
  // Concatenates every rank's `input` (equal sizes) into `output` in rank order. `input` may be
  // this rank's slice of `output`.
  virtual absl::Status all_gather(ConstBufferView input, BufferView output,
                                  std::string_view name) = 0;
  // Sums `input` over the group and writes this rank's 1/size() slice to `output`, which may be
  // that slice of `input`. A bf16 input may have an fp32 output: the sum is then not rounded.
  virtual absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                                      std::string_view name) = 0;
  // Sends slice i of `input` to rank i and receives slice j of `output` from rank j. Requires equal
  // element counts that size() divides.
  absl::Status all_to_all(ConstBufferView input, BufferView output, std::string_view name);
  // Like all_to_all, with slices of `send_counts[i]` and `receive_counts[j]` elements, in rank
  // order. Requires that rank i's send count for j equals j's receive count for i.
  virtual absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                                    BufferView output, std::span<const size_t> receive_counts,
                                    std::string_view name) = 0;
  virtual absl::Status broadcast(BufferView data, int root, std::string_view name) = 0;
  // A send may return before the matching receive begins, or block until it does. Callers must not
  // rely on either.
  virtual absl::Status send(ConstBufferView data, int to, std::string_view name) = 0;
  virtual absl::Status recv(BufferView data, int from, std::string_view name) = 0;
  // Sends and receives concurrently, so that a ring of ranks cannot deadlock.
  virtual absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                                 std::string_view name) = 0;
  virtual absl::Status barrier(std::string_view name) = 0;

  // Orders the group's collectives of device buffers with `computation`: each begins after all work
  // enqueued there before it, and later work begins after it. The call may return before the
  // collective is done. The group's next call or finish() then returns its error; results that the
  // computation produced after the failure are invalid. Null ends this ordering. Collectives of
  // host buffers are not affected. Called on the group's thread, or before that thread uses the
  // group.
  virtual void follow(const std::shared_ptr<DeviceQueue>& /*computation*/) {}
  // Blocks until all enqueued collectives are done; returns the first error. Called on the group's
  // thread.
  virtual absl::Status finish() { return absl::OkStatus(); }

  // Returns the bytes that this rank has sent through this group in collectives of `kind`. Any
  // thread.
  virtual SentBytes sent(CollectiveKind kind) const = 0;
  // Returns the time that this rank has spent in completed collectives of this group. Any thread.
  virtual Duration busy() const = 0;

  // Makes the current and every later call of this rank, in all groups of its transport, fail with
  // Unavailable. Any thread.
  virtual void abort() = 0;

 protected:
  // Ends the process unless the slices of an all_to_all_v() cover both buffers.
  void check_slices(ConstBufferView input, std::span<const size_t> send_counts,
                    ConstBufferView output, std::span<const size_t> receive_counts) const;
};

}  // namespace muster::trainer

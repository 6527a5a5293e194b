// The collectives of a process group, which is a list of ranks of the world. transport_group.h
// implements them over any transport, between threads or processes. staged_group.h and nccl_group.h
// extend a group to buffers in device memory.
//
// Every rank of a group must call the same collectives in the same order and with the same sizes. A
// call returns when this rank's part is done, or earlier if the group follows a computation
// (follow()). Each collective is published on the rank's progress page, if there is one, before it
// starts and after it completes. Buffers must not overlap unless a method permits it.
//
// The element types are fp32, bf16 and, for collectives that do not add, int32. Sums are computed
// in fp32, in rank order, and rounded once. So a result is bit-identical on all ranks, in every run
// and with every transport.
//
// The table has the bytes that each of n ranks sends for S bytes of data. They are the minimum if
// all ranks send equally much (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective
// Communication Operations in MPICH"; NCCL-tests' PERFORMANCE.md):
//
//   all_reduce            2 (n-1)/n S      each rank sums one slice, then all gather the slices
//   all_gather            (n-1) S          S is the input of one rank
//   reduce_scatter        (n-1)/n S        S is the input of one rank, with all slices
//   all_to_all            (n-1)/n S        S is the input of one rank
//   broadcast             2 (n-1)/n S      by the root, which scatters slices; each other rank
//                                          sends (n-2)/n S when all gather the slices
//   send, recv            S, 0
//   barrier               4 (n-1) bytes
//
// If n does not divide the elements, slices differ by one element. If each of m nodes has equally
// many ranks of a group, the group sums within each node before it sends to other nodes, and
// gathers from other nodes before it gathers within nodes. The bytes that a rank sends to other
// nodes are then:
//
//   all_reduce            2 (m-1)/n S      instead of 2 (m-1)/m S
//   all_gather            (m-1) S          instead of (m-1) n/m S
//   reduce_scatter        (m-1)/n S        instead of (m-1)/m S
//
// bf16 partial sums are sent to other nodes as fp32, which doubles their bytes.
//
// Collectives return Unavailable if a peer is gone or abort() was called, and DeadlineExceeded,
// with the ranks that did not respond, after the transport's timeout. The transport is then
// unusable, and all other ranks fail at once. A group is used by one thread at a time, except for
// abort(), sent() and busy(). Different groups may be used by different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "trainer_core/base/device_memory.h"
#include "trainer_core/comm/buffer_view.h"

namespace muster::trainer {

// Bytes that a rank has sent.
struct SentBytes {
  uint64_t total = 0;
  uint64_t across_nodes = 0;  // the part that went to other nodes

  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// A process group, as one of its ranks uses it. `name` identifies a collective on the progress page
// and in errors.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& name() const = 0;  // "fsdp+context"
  virtual int rank() const = 0;                 // within the group
  virtual int size() const = 0;

  // Replaces `data` by its sum over the ranks.
  virtual absl::Status all_reduce(BufferView data, std::string_view name) = 0;
  // Replaces each element of `data` by its maximum over the ranks; NaN if it is NaN on any rank.
  virtual absl::Status all_reduce_max(BufferView data, std::string_view name) = 0;
  // Concatenates the inputs of all ranks, which have equal sizes, into `output` in rank order.
  // `input` may be this rank's slice of `output`.
  virtual absl::Status all_gather(ConstBufferView input, BufferView output,
                                  std::string_view name) = 0;
  // Sums `input` over the ranks, and writes this rank's slice (1/size() of the sum) to `output`.
  // `output` may be the same slice of `input`. If `input` is bf16, `output` may be fp32; the sum is
  // then not rounded.
  virtual absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                                      std::string_view name) = 0;
  // Sends slice i of `input` to rank i, and receives slice j of `output` from rank j. Requires that
  // `input` and `output` have the same number of elements, which size() divides.
  absl::Status all_to_all(ConstBufferView input, BufferView output, std::string_view name);
  // Does the same with slices of any sizes: `send_counts[i]` elements to rank i and
  // `receive_counts[j]` elements from rank j. Slices are adjacent, in rank order. Requires that
  // rank i's send count for rank j equals rank j's receive count for rank i.
  virtual absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                                    BufferView output, std::span<const size_t> receive_counts,
                                    std::string_view name) = 0;
  // Copies the `data` of rank `root` to all ranks.
  virtual absl::Status broadcast(BufferView data, int root, std::string_view name) = 0;
  // Send and receive a message. Callers must neither rely on a send to block until the matching
  // receive has begun, nor rely on it to return earlier.
  virtual absl::Status send(ConstBufferView data, int to, std::string_view name) = 0;
  virtual absl::Status recv(BufferView data, int from, std::string_view name) = 0;
  // Sends and receives concurrently, so that ranks that form a ring cannot deadlock.
  virtual absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                                 std::string_view name) = 0;
  // Blocks until all ranks have called it.
  virtual absl::Status barrier(std::string_view name) = 0;

  // Orders the group's collectives of device buffers in the queue `computation`: a collective
  // begins after all work that was enqueued there before the call, and work that is enqueued later
  // begins after the collective. The call may return before the collective is done; its error is
  // then returned by the group's next call or by finish(), and results that the computation has
  // produced since are invalid. Null ends this ordering. Collectives of host buffers are not
  // affected. Called on the group's thread, or before that thread uses the group.
  virtual void follow(const std::shared_ptr<DeviceQueue>& /*computation*/) {}
  // Blocks until all enqueued collectives are done. Returns the first error. Called on the group's
  // thread.
  virtual absl::Status finish() { return absl::OkStatus(); }

  // Returns the bytes that this rank has sent in collectives of `kind`. Thread-safe.
  virtual SentBytes sent(CollectiveKind kind) const = 0;
  // Returns the time that this rank has spent in completed collectives. Thread-safe.
  virtual Duration busy() const = 0;

  // Makes the current call and every later call of this rank fail with Unavailable, in all groups
  // of its transport. Thread-safe.
  virtual void abort() = 0;

 protected:
  // Ends the process unless the slices of an all_to_all_v() cover both buffers.
  void check_slices(ConstBufferView input, std::span<const size_t> send_counts,
                    ConstBufferView output, std::span<const size_t> receive_counts) const;
};

}  // namespace muster::trainer

// The comm table: collectives of one process group, which is a list of the world's ranks. `make_group` (transport_group.h)
// implements it over any transport, between threads or processes; over such a group staged_group.h and nccl_group.h take numbers
// that lie on a device.
//
// Every rank of a group calls the same collectives in the same order, with the same sizes. A call returns when this rank's part is
// done, or in the computation's order earlier (follow()). Each one is published on the rank's progress page (if one was given) before it starts and after it completes. Buffers
// may not overlap unless a method says so.
//
// Types: fp32 and bf16; int32 where numbers are moved and not added. Sums are made in fp32, in the order of ranks, and rounded
// once, so a result is bit-identical on all ranks, from run to run and between transports.
//
// Bytes that a rank of n sends, for S bytes of data: the least there can be where all ranks send alike (Thakur, Rabenseifner and
// Gropp 2005, "Optimization of Collective Communication Operations in MPICH"; NCCL-tests' PERFORMANCE.md):
//
//   all_reduce            2 (n-1)/n S      first each rank's slice is summed, then the sums are gathered
//   all_gather            (n-1) S          S: of one rank's input
//   reduce_scatter        (n-1)/n S        S: of one rank's input, all slices
//   all_to_all            (n-1)/n S        S: of one rank's input
//   broadcast             2 (n-1)/n S      from the root; (n-2)/n S from each other rank, in the gathering of slices
//   send, recv            S, 0
//   barrier               4 (n-1) bytes
//
// Where n does not divide S, slices differ by one element. A group that spans m nodes evenly sums inside each node before
// anything crosses to another, and gathers from other nodes before it gathers inside, so that across nodes go
//
//   all_reduce            2 (m-1)/n S      instead of 2 (m-1)/m S
//   all_gather            (m-1) S          instead of (m-1) n/m S
//   reduce_scatter        (m-1)/n S        instead of (m-1)/m S
//
// and bf16's partial sums travel there as fp32, twice the bytes of sums.
//
// Errors: Unavailable when a peer is gone or abort() was called, DeadlineExceeded after the transport's timeout, which names the
// silent ranks; the transport is unusable afterwards, and the peers learn of it at once. One thread at a time per object, except
// abort(), sent() and busy(); several threads may use different groups at once.
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

// What a rank has sent.
struct SentBytes {
  uint64_t total = 0;
  uint64_t across_nodes = 0;  // of it, to ranks on other nodes

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
  // The largest of each element, in place; NaN where any rank has one.
  virtual absl::Status all_reduce_max(BufferView data, std::string_view name) = 0;
  // Concatenates every rank's `input` (equal sizes) into `output` in rank order. `input` may be its own place in `output`.
  virtual absl::Status all_gather(ConstBufferView input, BufferView output,
                                  std::string_view name) = 0;
  // Sums `input` over the group and leaves this rank's 1/size() slice in `output`, which may be its own place in `input`. A bf16
  // input may have an fp32 output: the sum is then not rounded.
  virtual absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                                      std::string_view name) = 0;
  // Slice i of `input` goes to rank i; slice j of `output` came from rank j.
  virtual absl::Status all_to_all(ConstBufferView input, BufferView output,
                                  std::string_view name) = 0;
  // The same with slices of `send_counts[i]` and `receive_counts[j]` elements, in rank order. What rank i sends to j is what j
  // expects from i.
  virtual absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                                    BufferView output, std::span<const size_t> receive_counts,
                                    std::string_view name) = 0;
  virtual absl::Status broadcast(BufferView data, int root, std::string_view name) = 0;
  // A send may return before its receive has begun, or wait for it: nobody may rely on either.
  virtual absl::Status send(ConstBufferView data, int to, std::string_view name) = 0;
  virtual absl::Status recv(BufferView data, int from, std::string_view name) = 0;
  // Both at once, as a ring of ranks needs it.
  virtual absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                                 std::string_view name) = 0;
  virtual absl::Status barrier(std::string_view name) = 0;

  // From here on collectives of a device's numbers are in the order of what `computation` is called for: each begins when what was called
  // before it is done, what is called after it begins when it is done, and its call may return before. Errors that come later are those of
  // the group's next call and of finish(); what the computation has made since is not to be used. Null: as before. Of host's numbers
  // nothing changes. Before the group is used by its thread, or on it.
  virtual void follow(const std::shared_ptr<DeviceQueue>& /*computation*/) {}
  // Until all that was called is done; its first error. The thread of the group's calls.
  virtual absl::Status finish() { return absl::OkStatus(); }

  // What this rank has sent through this group in collectives of one kind. Any thread.
  virtual SentBytes sent(CollectiveKind kind) const = 0;
  // How long this rank has been in collectives of this group that are over. Any thread.
  virtual Duration busy() const = 0;

  // Makes the current and every later call of this rank, in all groups of its transport, fail with Unavailable. Any thread.
  virtual void abort() = 0;
};

}  // namespace muster::trainer

// Length for heads (Jacobs et al., "DeepSpeed Ulysses", 2023): before attention each rank of the sequence axis has all heads of a part
// of the positions, during it all positions of a part of the heads, and one all-to-all leads from one to the other:
//
//   (B, S/Q, W) ── to_heads ──▶ (B, S, W/Q) ── to_positions ──▶ (B, S/Q, W)
//
// W consists of column groups of whole heads: the queries, keys and values of qkv, or the one group of attention's output. Each
// group is shared evenly: rank q gets its q-th part. Positions are those of sequence_positions (token_layout.h), so S may be a context
// rank's. Backward is the mirror: what to_heads did to qkv, to_positions does to dqkv.
//
// Bytes that a rank sends: (Q - 1)/Q of its tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/base/tensor.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

class Ulysses {
 public:
  // They outlive it; one thread at a time. `batch` is B.
  Ulysses(Ops& ops, ProcessGroup& group, int64_t batch) : ops_(ops), group_(group), batch_(batch) {}

  // `local` (B S/Q, W), `whole` (B S, W/Q), which may be the same memory; `staging` is twice as large as either, of their type. Fail as
  // the group does.
  absl::Status to_heads(std::span<const int64_t> groups, const Tensor& local, const Tensor& whole,
                        const Tensor& staging, std::string_view name);
  absl::Status to_positions(std::span<const int64_t> groups, const Tensor& whole,
                            const Tensor& local, const Tensor& staging, std::string_view name);

 private:
  // What goes to or comes from a rank, (B S/Q, W/Q), in a half of the staging memory.
  Tensor slice(const Tensor& local, const Tensor& staging, int half, int rank) const;
  absl::Status exchange(const Tensor& local, const Tensor& staging, std::string_view name);
  // Calls body(first column of the whole, of the slice, columns) for what rank `rank` has of each group.
  template <class Body>
  void for_groups(std::span<const int64_t> groups, int rank, const Body& body) const;
  // Calls body(rows of the slice, rows of the whole) for each sequence, of the positions that rank `rank` has.
  template <class Body>
  void for_sequences(const Tensor& slice, const Tensor& whole, int rank, const Body& body) const;

  Ops& ops_;
  ProcessGroup& group_;
  int64_t batch_;
};

}  // namespace muster::trainer

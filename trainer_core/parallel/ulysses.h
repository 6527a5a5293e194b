// Sequence parallelism over heads (Jacobs et al., "DeepSpeed Ulysses", 2023): outside attention
// each rank of the sequence axis has all heads of a part of the positions; during attention it has
// all positions of a part of the heads. One all-to-all converts between the two:
//
//   (B, S/Q, W) ── to_heads ──▶ (B, S, W/Q) ── to_positions ──▶ (B, S/Q, W)
//
// W consists of column groups of whole heads: the queries, keys and values of qkv, or the single
// group of attention's output. Each group is divided evenly: rank q gets its q-th part. Positions
// are those of sequence_positions (token_layout.h): with context parallelism, S counts the
// positions of one context rank. The backward pass mirrors this: to_positions converts dqkv.
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
  // The references must outlive it; one thread at a time. `batch` is B.
  Ulysses(Ops& ops, ProcessGroup& group, int64_t batch) : ops_(ops), group_(group), batch_(batch) {}

  // `local` is (B S/Q, W), `whole` (B S, W/Q); they may share memory. `staging` is twice as large
  // as either, of their type. Return the group's errors.
  absl::Status to_heads(std::span<const int64_t> groups, const Tensor& local, const Tensor& whole,
                        const Tensor& staging, std::string_view name);
  absl::Status to_positions(std::span<const int64_t> groups, const Tensor& whole,
                            const Tensor& local, const Tensor& staging, std::string_view name);

 private:
  // Returns the slice that goes to or comes from a rank, (B S/Q, W/Q), in one half of the staging
  // memory.
  Tensor slice(const Tensor& local, const Tensor& staging, int half, int rank) const;
  absl::Status exchange(const Tensor& local, const Tensor& staging, std::string_view name);
  // Calls body(first column of the whole, of the slice, columns) for rank `rank`'s part of each
  // group.
  template <class Body>
  void for_groups(std::span<const int64_t> groups, int rank, const Body& body) const;
  // Calls body(rows of the slice, rows of the whole) for each sequence, for the positions of rank
  // `rank`.
  template <class Body>
  void for_sequences(const Tensor& slice, const Tensor& whole, int rank, const Body& body) const;

  Ops& ops_;
  ProcessGroup& group_;
  int64_t batch_;
};

}  // namespace muster::trainer

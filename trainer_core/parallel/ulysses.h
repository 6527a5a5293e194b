// Sequence parallelism over heads (Jacobs et al., "DeepSpeed Ulysses", 2023). Outside attention,
// each of the Q ranks of the sequence axis has some positions with all heads; during attention it
// has all positions with some of the heads. An all-to-all converts between the two forms:
//
//   (B, S/Q, W) ── to_heads ──▶ (B, S, W/Q) ── to_positions ──▶ (B, S/Q, W)
//
// The W columns consist of column groups, each of complete heads: the queries, keys and values of
// qkv, or a single group for attention's output. Each group is divided evenly, and rank q gets its
// q-th part. Positions are those of sequence_positions (token_layout.h); with context parallelism,
// S is the number of positions of one context rank. The backward pass does the reverse:
// to_positions converts dqkv.
//
// A rank sends (Q - 1)/Q of its tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/base/tensor.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The exchange of one rank.
class Ulysses {
 public:
  // All arguments must outlive this object, which is used by one thread at a time. `batch` is B.
  Ulysses(Ops& ops, ProcessGroup& group, int64_t batch) : ops_(ops), group_(group), batch_(batch) {}

  // Convert between `local` (B S/Q, W) and `whole` (B S, W/Q), which may be the same memory.
  // `groups` has the number of columns of each group in `local`. `staging` has the same type and
  // twice the elements. Return the errors of the group.
  absl::Status to_heads(std::span<const int64_t> groups, const Tensor& local, const Tensor& whole,
                        const Tensor& staging, std::string_view name);
  absl::Status to_positions(std::span<const int64_t> groups, const Tensor& whole,
                            const Tensor& local, const Tensor& staging, std::string_view name);

 private:
  // Returns the slice (B S/Q, W/Q) that is sent to a rank (one half of `staging`) or received from
  // it (the other half).
  Tensor slice(const Tensor& local, const Tensor& staging, int half, int rank) const;
  absl::Status exchange(const Tensor& local, const Tensor& staging, std::string_view name);
  // Calls body(first column in the complete tensor, first column in the slice, number of columns)
  // for the part of each group that belongs to rank `rank`.
  template <class Body>
  void for_groups(std::span<const int64_t> groups, int rank, const Body& body) const;
  // Calls body(rows of the slice, rows of `whole`) for each sequence, with the positions of rank
  // `rank`.
  template <class Body>
  void for_sequences(const Tensor& slice, const Tensor& whole, int rank, const Body& body) const;

  Ops& ops_;
  ProcessGroup& group_;
  int64_t batch_;
};

}  // namespace muster::trainer

// Expert parallelism: the experts of a layer are shared evenly by the ranks of the expert axis, X of them, rank x has experts
// [x E/X, (x + 1) E/X), and rows of tokens go to their experts' ranks and back (Lepikhin et al., "GShard", 2021; without a capacity:
// Gale et al., "MegaBlocks", 2023, "dropless").
//
//   route ▶ dispatch ▶ (R, d) rows by expert ── to_experts ──▶ (R', d) rows by own expert, then by rank ▶ expert_matmul …
//   combine ◀ (R, d) ◀────────────────────────── to_tokens ◀──
//
// Backward is the mirror: gradients of outputs go to_experts, gradients of inputs to_tokens; so do the gates (R, 1) and
// their gradients, because what experts gave is not kept. Which rows exist is routing's decision alone, so drops are those of one rank.
//
// Bytes that a rank sends: 4 E/X (X - 1) for the counts, then the rows whose experts are others'; R (X - 1)/X of R rows where all
// experts are equally liked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/tensor.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// How many rows of whom a layer's ranks exchange: of this rank for each expert, and of each rank for each of this rank's experts.
struct ExpertCounts {
  std::vector<int32_t> sent;      // (E)
  std::vector<int32_t> received;  // (X, E/X)

  int64_t rows() const;  // R' = the sum of received
};

// The most rows that a rank can receive, for the memory plan. `shape` is a rank's routing, of which all ranks have the like.
int64_t received_rows_max(const RoutingShape& shape, int ranks);

class ExpertExchange {
 public:
  // They outlive it; one thread at a time. `experts` is E.
  ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts);

  // After route(): exchanges counts by its offsets (E + 1), and writes `own_offsets` (E/X + 1), where each own expert's rows
  // begin. Fails as the group does.
  absl::Status count(const Tensor& offsets, const Tensor& own_offsets, ExpertCounts& counts,
                     std::string_view name);

  // `rows` (R, n), of which the first as many as `counts` has sent are moved; `own` and `staging` (R' or more, n). Of one type.
  absl::Status to_experts(const ExpertCounts& counts, const Tensor& rows, const Tensor& own,
                          const Tensor& staging, std::string_view name);
  absl::Status to_tokens(const ExpertCounts& counts, const Tensor& own, const Tensor& rows,
                         const Tensor& staging, std::string_view name);

 private:
  size_t own_experts() const { return experts_ / static_cast<size_t>(group_.size()); }
  // Elements of rows of width `width` that each rank gets and gives.
  void measure(const ExpertCounts& counts, int64_t width);
  // Calls body(first row by rank, first row by expert, rows) for each rank's rows of each own expert.
  template <class Body>
  void for_segments(const ExpertCounts& counts, const Body& body) const;

  Ops& ops_;
  ProcessGroup& group_;
  size_t experts_;
  std::vector<size_t> sent_, received_;  // elements by rank: memory that calls use again
};

}  // namespace muster::trainer

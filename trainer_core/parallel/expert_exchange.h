// Expert parallelism: the X ranks of the expert axis divide the experts of a layer evenly; rank x
// has experts [x E/X, (x + 1) E/X). Rows of tokens travel to the ranks of their experts and back
// (Lepikhin et al., "GShard", 2021; without a capacity: Gale et al., "MegaBlocks", 2023,
// "dropless").
//
//   route ▶ dispatch ▶ (R, d) rows by expert ── to_experts ──▶ (R', d) rows by own expert and rank
//   combine ◀ (R, d) ◀────────────────────────── to_tokens ◀── expert_matmul …
//
// Backward is the mirror: gradients of outputs go to_experts, gradients of inputs to_tokens. The
// gates (R, 1) and their gradients travel, too, because the experts' outputs are not saved. Only
// the routing decides which rows exist, so drops are the same as on one rank.
//
// Bytes that a rank sends: 4 E/X (X - 1) for the counts, then the rows of other ranks' experts: R
// (X - 1)/X of R rows if tokens are spread evenly over experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/tensor.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/model/model_exchange.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Buffers for the exchange of gates: fp32, and the identity order 0, 1, … for rows that are already
// in the order of computation.
struct GateRows {
  Tensor rows;      // (R or more)
  Tensor gates;     // (R' or more)
  Tensor d_gates;   // (R' or more)
  Tensor in_order;  // (R' or more) int32
};

// All state between the calls of a traffic is in the traffic itself; this object only keeps memory
// for reuse. Fails as the group does.
class ExpertExchange {
 public:
  // The references must outlive it; one thread at a time. `experts` is E. `staging` has room for
  // the received rows of any call, ordered by rank.
  ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts, const Tensor& staging);

  // Called after route(): waits for the traffic's offsets, exchanges counts, and fills the rest of
  // the traffic. This is the only call that waits for the device.
  absl::Status count(const ExpertTraffic& traffic, std::string_view name);
  // Fills the traffic as if no rank sent rows.
  void count_none(const ExpertTraffic& traffic);

  // Moves as many of `rows` (R, n) as the offsets state; `own` has R' or more rows of n. Both have
  // the same type.
  absl::Status to_experts(const ExpertTraffic& traffic, const Tensor& rows, const Tensor& own,
                          std::string_view name);
  absl::Status to_tokens(const ExpertTraffic& traffic, const Tensor& own, const Tensor& rows,
                         std::string_view name);
  // Runs Ops::combine_backward on the ranks that have the activations; gates and their gradients
  // travel as rows of one element.
  absl::Status combine_backward(const ExpertTraffic& traffic, const ExpertGates& gates,
                                const GateRows& memory, std::string_view name);

 private:
  size_t ranks() const { return sent_.size(); }
  size_t own_experts() const { return own_offsets_.size() - 1; }
  // Computes the elements of rows of width `width` that go to and come from each rank.
  void measure(const ExpertCounts& counts, int64_t width);
  Tensor staged(const ExpertCounts& counts, const Tensor& like) const;  // R' rows
  // Calls body(first row by rank, first row by expert, rows) for each rank's rows of each own
  // expert.
  template <class Body>
  void for_segments(const ExpertCounts& counts, const Body& body);

  Ops& ops_;
  ProcessGroup& group_;
  Tensor staging_;
  // State of the current traffic:
  std::vector<int32_t> offsets_;         // (E + 1)
  std::vector<int32_t> own_offsets_;     // (E/X + 1)
  std::vector<size_t> sent_, received_;  // elements by rank
  std::vector<int64_t> by_rank_;         // offsets of each rank's next rows
};

}  // namespace muster::trainer

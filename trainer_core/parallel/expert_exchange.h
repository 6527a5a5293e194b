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
#include "trainer_core/model/model_exchange.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// What the gates' exchange needs: fp32, and 0, 1, … for rows that lie in the order in which they are computed with.
struct GateRows {
  Tensor rows;      // (R or more)
  Tensor gates;     // (R' or more)
  Tensor d_gates;   // (R' or more)
  Tensor in_order;  // (R' or more) int32
};

// What is between the rows of a traffic is the traffic's own: calls keep nothing but memory that later ones use again. Fails as the
// group does.
class ExpertExchange {
 public:
  // They outlive it; one thread at a time. `experts` is E. `staging` has room for the rows of any call as they come, by rank.
  ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts, const Tensor& staging);

  // After route(): waits for the traffic's offsets, exchanges counts by them, and writes the rest of it. Nothing else here waits for the
  // device.
  absl::Status count(const ExpertTraffic& traffic, std::string_view name);
  // Writes that nobody sends anything.
  void count_none(const ExpertTraffic& traffic);

  // `rows` (R, n), of which the first as many as the offsets say are moved; `own` (R' or more, n). Of one type.
  absl::Status to_experts(const ExpertTraffic& traffic, const Tensor& rows, const Tensor& own,
                          std::string_view name);
  absl::Status to_tokens(const ExpertTraffic& traffic, const Tensor& own, const Tensor& rows,
                         std::string_view name);
  // Ops::combine_backward where the activations are; gates and their gradients travel as rows of one number.
  absl::Status combine_backward(const ExpertTraffic& traffic, const ExpertGates& gates,
                                const GateRows& memory, std::string_view name);

 private:
  size_t ranks() const { return sent_.size(); }
  size_t own_experts() const { return own_offsets_.size() - 1; }
  // Elements of rows of width `width` that each rank gets and gives.
  void measure(const ExpertCounts& counts, int64_t width);
  Tensor staged(const ExpertCounts& counts, const Tensor& like) const;  // R' rows
  // Calls body(first row by rank, first row by expert, rows) for each rank's rows of each own expert.
  template <class Body>
  void for_segments(const ExpertCounts& counts, const Body& body);

  Ops& ops_;
  ProcessGroup& group_;
  Tensor staging_;
  // Of the traffic that is looked at:
  std::vector<int32_t> offsets_;         // (E + 1)
  std::vector<int32_t> own_offsets_;     // (E/X + 1)
  std::vector<size_t> sent_, received_;  // elements by rank
  std::vector<int64_t> by_rank_;         // where each rank's next rows are
};

}  // namespace muster::trainer

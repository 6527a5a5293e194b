// Expert parallelism: the X ranks of the expert axis divide the E experts of a layer evenly; rank x
// has the experts [x E/X, (x + 1) E/X). The rows of tokens are sent to the ranks of their experts
// and back (Lepikhin et al., "GShard", 2021; without a capacity: Gale et al., "MegaBlocks", 2023).
//
//   route ▶ dispatch ▶ (R, d) rows by expert ── to_experts ──▶ (R', d) rows by own expert, rank
//   combine ◀ (R, d) ◀────────────────────────── to_tokens ◀── expert_matmul …
//
// The backward pass is the reverse: gradients of outputs go to_experts, gradients of inputs go
// to_tokens. The gates (R, 1) and their gradients are exchanged, too, because the outputs of
// experts are not saved. Only the routing decides which rows are dropped, so the dropped tokens are
// the same as on a single rank.
//
// A rank sends 4 E/X (X - 1) bytes for the counts, then the rows for experts of other ranks. These
// are (X - 1)/X R of its R rows if tokens are spread evenly over experts.
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

// The buffers for the exchange of gates. All are fp32 except `in_order`, which contains 0, 1, …,
// the identity permutation: the rows are already sorted by expert.
struct GateRows {
  Tensor rows;      // (R or more)
  Tensor gates;     // (R' or more)
  Tensor d_gates;   // (R' or more)
  Tensor in_order;  // (R' or more) int32
};

// The exchange of one rank. All state between calls is in the ExpertTraffic argument; the members
// are only memory that is reused. All calls return the errors of the group.
class ExpertExchange {
 public:
  // All references must outlive this object, which is used by one thread at a time. `experts` is E.
  // `staging` must have room for the received rows of any call; it holds them ordered by rank.
  ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts, const Tensor& staging);

  // Blocks until the device has computed traffic.offsets, exchanges the counts, and sets the other
  // fields of the traffic. Called after Ops::route(). This is the only call that waits for the
  // device.
  absl::Status count(const ExpertTraffic& traffic, std::string_view name);
  // Sets the other fields of the traffic as if no rank sent rows.
  void count_none(const ExpertTraffic& traffic);

  // Send rows to their experts, or back to their tokens. `rows` is (R, n), of which the first
  // offsets[E] rows are used; `own` has at least R' rows of n elements. Both have the same type.
  absl::Status to_experts(const ExpertTraffic& traffic, const Tensor& rows, const Tensor& own,
                          std::string_view name);
  absl::Status to_tokens(const ExpertTraffic& traffic, const Tensor& own, const Tensor& rows,
                         std::string_view name);
  // Runs Ops::combine_backward on the ranks that have the activations. Gates and their gradients
  // are exchanged as rows of one element.
  absl::Status combine_backward(const ExpertTraffic& traffic, const ExpertGates& gates,
                                const GateRows& memory, std::string_view name);

 private:
  size_t ranks() const { return sent_.size(); }
  size_t own_experts() const { return own_offsets_.size() - 1; }
  // Sets sent_ and received_ for rows of `width` elements.
  void measure(const ExpertCounts& counts, int64_t width);
  Tensor staged(const ExpertCounts& counts, const Tensor& like) const;  // (R', …)
  // Calls body(first row by rank, first row by expert, rows) for each rank's rows of each own
  // expert.
  template <class Body>
  void for_segments(const ExpertCounts& counts, const Body& body);

  Ops& ops_;
  ProcessGroup& group_;
  Tensor staging_;
  // Values of the traffic of the current call.
  std::vector<int32_t> offsets_;         // (E + 1)
  std::vector<int32_t> own_offsets_;     // (E/X + 1)
  std::vector<size_t> sent_, received_;  // number of elements to and from each rank
  std::vector<int64_t> by_rank_;         // offset of the next row of each rank
};

}  // namespace muster::trainer

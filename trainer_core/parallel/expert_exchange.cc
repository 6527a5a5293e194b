#include "trainer_core/parallel/expert_exchange.h"

#include <algorithm>
#include <numeric>

#include "trainer_core/base/tensor_views.h"

namespace muster::trainer {

ExpertExchange::ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts,
                               const Tensor& staging)
    : ops_(ops),
      group_(group),
      staging_(staging),
      offsets_(static_cast<size_t>(experts) + 1),
      own_offsets_(static_cast<size_t>(experts / group.size()) + 1),
      sent_(static_cast<size_t>(group.size())),
      received_(sent_.size()),
      by_rank_(sent_.size()) {
  MUSTER_CHECK(experts % group.size() == 0)
      << experts << " experts on " << group.size() << " ranks";
}

absl::Status ExpertExchange::count(const ExpertTraffic& traffic, std::string_view name) {
  ExpertCounts& counts = *traffic.counts;
  MUSTER_CHECK(counts.sent.size() + 1 == offsets_.size() &&
               counts.received.size() == counts.sent.size())
      << "the traffic of " << counts.sent.size() << " experts, and not of " << offsets_.size() - 1;
  ops_.download(traffic.offsets, offsets_.data());
  for (size_t e = 0; e < counts.sent.size(); ++e) counts.sent[e] = offsets_[e + 1] - offsets_[e];
  if (absl::Status status = group_.all_to_all(counts.sent, counts.received, name); !status.ok()) {
    count_none(traffic);
    return status;
  }
  std::ranges::fill(own_offsets_, 0);
  for (size_t i = 0; i < counts.received.size(); ++i)
    own_offsets_[i % own_experts() + 1] += counts.received[i];
  std::partial_sum(own_offsets_.begin(), own_offsets_.end(), own_offsets_.begin());
  ops_.upload(own_offsets_.data(), traffic.own_offsets);
  return absl::OkStatus();
}

void ExpertExchange::count_none(const ExpertTraffic& traffic) {
  std::ranges::fill(traffic.counts->received, 0);
  std::ranges::fill(own_offsets_, 0);
  ops_.upload(own_offsets_.data(), traffic.own_offsets);
}

void ExpertExchange::measure(const ExpertCounts& counts, int64_t width) {
  const auto elements = [&](const std::vector<int32_t>& rows, size_t rank) {
    const auto* first = rows.data() + rank * own_experts();
    return static_cast<size_t>(std::accumulate(first, first + own_experts(), int64_t{0}) * width);
  };
  for (size_t rank = 0; rank < ranks(); ++rank) {
    sent_[rank] = elements(counts.sent, rank);
    received_[rank] = elements(counts.received, rank);
  }
}

Tensor ExpertExchange::staged(const ExpertCounts& counts, const Tensor& like) const {
  const Tensor staged =
      Tensor::of(like.dtype, staging_.data, {counts.rows_received(), like.dim(1)});
  MUSTER_CHECK(staged.bytes() <= staging_.bytes())
      << staged.dim(0) << " rows of " << like.dim(1) << " elements in " << staging_.bytes()
      << " bytes";
  return staged;
}

template <class Body>
void ExpertExchange::for_segments(const ExpertCounts& counts, const Body& body) {
  const std::vector<int32_t>& received = counts.received;
  by_rank_[0] = 0;
  for (size_t rank = 1; rank < ranks(); ++rank) {
    const auto* before = received.data() + (rank - 1) * own_experts();
    by_rank_[rank] = std::accumulate(before, before + own_experts(), by_rank_[rank - 1]);
  }
  int64_t by_expert = 0;
  for (size_t e = 0; e < own_experts(); ++e) {
    for (size_t rank = 0; rank < ranks(); ++rank) {
      const int64_t rows = received[rank * own_experts() + e];
      if (rows > 0) body(by_rank_[rank], by_expert, rows);
      by_rank_[rank] += rows;
      by_expert += rows;
    }
  }
}

absl::Status ExpertExchange::to_experts(const ExpertTraffic& traffic, const Tensor& rows,
                                        const Tensor& own, std::string_view name) {
  const ExpertCounts& counts = *traffic.counts;
  measure(counts, rows.dim(1));
  const Tensor staging = staged(counts, own);
  if (absl::Status status = group_.all_to_all_v(rows_at(rows, 0, counts.rows_sent()), sent_,
                                                staging, received_, name);
      !status.ok()) {
    return status;
  }
  for_segments(counts, [&](int64_t by_rank, int64_t by_expert, int64_t count) {
    ops_.copy(rows_at(staging, by_rank, count), rows_at(own, by_expert, count));
  });
  return absl::OkStatus();
}

absl::Status ExpertExchange::to_tokens(const ExpertTraffic& traffic, const Tensor& own,
                                       const Tensor& rows, std::string_view name) {
  const ExpertCounts& counts = *traffic.counts;
  measure(counts, rows.dim(1));
  const Tensor staging = staged(counts, own);
  for_segments(counts, [&](int64_t by_rank, int64_t by_expert, int64_t count) {
    ops_.copy(rows_at(own, by_expert, count), rows_at(staging, by_rank, count));
  });
  return group_.all_to_all_v(staging, received_, rows_at(rows, 0, counts.rows_sent()), sent_, name);
}

absl::Status ExpertExchange::combine_backward(const ExpertTraffic& traffic,
                                              const ExpertGates& gates, const GateRows& memory,
                                              std::string_view name) {
  // Views with one element per row: a row for each choice, and a row for each row of own experts.
  const int64_t choices = gates.slots.elements(), own = traffic.counts->rows_received();
  const auto column = [](const Tensor& of, int64_t rows) { return tensor_at(of, 0, {rows, 1}); };
  const Tensor slots = column(gates.slots, choices), rows = column(memory.rows, choices);
  const Tensor own_gates = column(memory.gates, own), own_d_gates = column(memory.d_gates, own);
  const Tensor d_gates = column(gates.dgates, choices);
  ops_.dispatch(slots, column(gates.gates, choices), rows);
  if (absl::Status status = to_experts(traffic, rows, own_gates, name); !status.ok()) return status;
  ops_.combine_backward(column(memory.in_order, own), own_gates, gates.act, gates.dact,
                        own_d_gates);
  if (absl::Status status = to_tokens(traffic, own_d_gates, rows, name); !status.ok())
    return status;
  ops_.fill(d_gates, 0);
  ops_.dispatch_backward(slots, rows, d_gates);
  return absl::OkStatus();
}

}  // namespace muster::trainer

#include "trainer_core/parallel/expert_exchange.h"

#include <algorithm>
#include <numeric>

#include "trainer_core/base/tensor_rows.h"

namespace muster::trainer {

int64_t ExpertCounts::rows() const {
  return std::accumulate(received.begin(), received.end(), int64_t{0});
}

int64_t received_rows_max(const RoutingShape& shape, int ranks) {
  const int64_t own = shape.experts / ranks;
  // A token chooses an expert once. A group's capacity is shared by the ranks that share the group.
  const int64_t chosen = ranks * shape.own_tokens() * std::min(shape.per_token, own);
  if (shape.capacity == 0) return chosen;
  return std::min(chosen, ranks * shape.groups * own * shape.capacity);
}

ExpertExchange::ExpertExchange(Ops& ops, ProcessGroup& group, int64_t experts)
    : ops_(ops),
      group_(group),
      experts_(static_cast<size_t>(experts)),
      sent_(static_cast<size_t>(group.size())),
      received_(sent_.size()) {
  MUSTER_CHECK(experts % group.size() == 0)
      << experts << " experts on " << group.size() << " ranks";
}

absl::Status ExpertExchange::count(const Tensor& offsets, const Tensor& own_offsets,
                                   ExpertCounts& counts, std::string_view name) {
  std::vector<int32_t> begins(experts_ + 1), own(own_experts() + 1);
  MUSTER_CHECK(offsets.elements() == static_cast<int64_t>(begins.size()) &&
               own_offsets.elements() == static_cast<int64_t>(own.size()))
      << offsets.elements() << " offsets of " << experts_ << " experts";
  ops_.download(offsets, begins.data());
  counts.sent.resize(experts_);
  counts.received.resize(experts_);
  for (size_t e = 0; e < experts_; ++e) counts.sent[e] = begins[e + 1] - begins[e];
  if (absl::Status status = group_.all_to_all(counts.sent, counts.received, name); !status.ok())
    return status;
  for (size_t i = 0; i < experts_; ++i) own[i % own_experts() + 1] += counts.received[i];
  std::partial_sum(own.begin(), own.end(), own.begin());
  ops_.upload(own.data(), own_offsets);
  return absl::OkStatus();
}

void ExpertExchange::measure(const ExpertCounts& counts, int64_t width) {
  const auto elements = [&](const std::vector<int32_t>& rows, size_t rank) {
    const auto* first = rows.data() + rank * own_experts();
    return static_cast<size_t>(std::accumulate(first, first + own_experts(), int64_t{0}) * width);
  };
  for (size_t rank = 0; rank < sent_.size(); ++rank) {
    sent_[rank] = elements(counts.sent, rank);
    received_[rank] = elements(counts.received, rank);
  }
}

template <class Body>
void ExpertExchange::for_segments(const ExpertCounts& counts, const Body& body) const {
  const size_t ranks = sent_.size();
  std::vector<int64_t> by_rank(ranks);  // where each rank's next rows are
  for (size_t rank = 1; rank < ranks; ++rank) {
    const auto* before = counts.received.data() + (rank - 1) * own_experts();
    by_rank[rank] = std::accumulate(before, before + own_experts(), by_rank[rank - 1]);
  }
  int64_t by_expert = 0;
  for (size_t e = 0; e < own_experts(); ++e) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const int64_t rows = counts.received[rank * own_experts() + e];
      if (rows > 0) body(by_rank[rank], by_expert, rows);
      by_rank[rank] += rows;
      by_expert += rows;
    }
  }
}

absl::Status ExpertExchange::to_experts(const ExpertCounts& counts, const Tensor& rows,
                                        const Tensor& own, const Tensor& staging,
                                        std::string_view name) {
  measure(counts, rows.dim(1));
  const int64_t sent = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
  ops_.synchronize();
  if (absl::Status status = group_.all_to_all_v(
          rows_at(rows, 0, sent), sent_, rows_at(staging, 0, counts.rows()), received_, name);
      !status.ok()) {
    return status;
  }
  for_segments(counts, [&](int64_t by_rank, int64_t by_expert, int64_t count) {
    ops_.copy(rows_at(staging, by_rank, count), rows_at(own, by_expert, count));
  });
  return absl::OkStatus();
}

absl::Status ExpertExchange::to_tokens(const ExpertCounts& counts, const Tensor& own,
                                       const Tensor& rows, const Tensor& staging,
                                       std::string_view name) {
  measure(counts, rows.dim(1));
  const int64_t sent = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
  for_segments(counts, [&](int64_t by_rank, int64_t by_expert, int64_t count) {
    ops_.copy(rows_at(own, by_expert, count), rows_at(staging, by_rank, count));
  });
  ops_.synchronize();
  return group_.all_to_all_v(rows_at(staging, 0, counts.rows()), received_, rows_at(rows, 0, sent),
                             sent_, name);
}

}  // namespace muster::trainer

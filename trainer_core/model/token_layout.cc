#include "trainer_core/model/token_layout.h"

#include <algorithm>

namespace muster::trainer {

Positions context_positions(int64_t seq_len, AxisCoordinate context) {
  if (context.ranks == 1) return Positions::first(seq_len);
  const int64_t chunks = int64_t{2} * context.ranks, count = seq_len / chunks;
  MUSTER_CHECK(seq_len % chunks == 0) << seq_len << " positions in " << chunks << " chunks";
  return Positions({context.index * count, count}, {(chunks - 1 - context.index) * count, count});
}

Positions sequence_positions(const Positions& of_context, AxisCoordinate sequence) {
  const int64_t count = of_context.count() / sequence.ranks;
  MUSTER_CHECK(of_context.count() % sequence.ranks == 0)
      << of_context.count() << " positions on " << sequence.ranks << " ranks";
  return of_context.slice(sequence.index * count, count);
}

TokenRows tensor_rows(int64_t batch, const Positions& positions, AxisCoordinate tensor) {
  const int64_t rows = batch * positions.count();
  MUSTER_CHECK(rows % tensor.ranks == 0) << rows << " rows on " << tensor.ranks << " ranks";
  return {positions, rows / tensor.ranks * tensor.index};
}

std::vector<int32_t> gathered_order(int64_t batch, int64_t seq_len,
                                    const std::vector<TokenRows>& ranks, int64_t count) {
  std::vector<int32_t> order(static_cast<size_t>(batch * seq_len), -1);
  int32_t gathered = 0;
  for (const TokenRows& rows : ranks) {
    for (int64_t row = 0; row < count; ++row) {
      const int64_t token = rows.sequence(row) * seq_len + rows.position(row);
      MUSTER_CHECK(token < batch * seq_len && order[static_cast<size_t>(token)] < 0)
          << "token " << token << " of " << order.size() << " is on two ranks, or beyond them";
      order[static_cast<size_t>(token)] = gathered++;
    }
  }
  MUSTER_CHECK(std::find(order.begin(), order.end(), -1) == order.end())
      << "the ranks have " << gathered << " of " << order.size() << " tokens";
  return order;
}

}  // namespace muster::trainer

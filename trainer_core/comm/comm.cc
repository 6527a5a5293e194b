#include "trainer_core/comm/comm.h"

#include <numeric>
#include <vector>

#include "trainer_core/base/check.h"

namespace muster::trainer {

absl::Status ProcessGroup::all_to_all(ConstBufferView input, BufferView output,
                                      std::string_view name) {
  const auto ranks = static_cast<size_t>(size());
  MUSTER_CHECK(input.count == output.count && input.count % ranks == 0)
      << "all_to_all of " << input.count << " into " << output.count << " elements among " << ranks
      << " ranks";
  const std::vector<size_t> counts(ranks, input.count / ranks);
  return all_to_all_v(input, counts, output, counts, name);
}

void ProcessGroup::check_slices(ConstBufferView input, std::span<const size_t> send_counts,
                                ConstBufferView output,
                                std::span<const size_t> receive_counts) const {
  const auto sum = [](std::span<const size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
  };
  const auto ranks = static_cast<size_t>(size());
  const auto own = static_cast<size_t>(rank());
  MUSTER_CHECK(send_counts.size() == ranks && receive_counts.size() == ranks &&
               sum(send_counts) == input.count && sum(receive_counts) == output.count &&
               send_counts[own] == receive_counts[own] && input.dtype == output.dtype)
      << "all_to_all of " << input.count << " into " << output.count << " elements among " << ranks
      << " ranks";
}

}  // namespace muster::trainer

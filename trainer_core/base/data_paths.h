// The value of `dataset_path`: one folder of token shards, or several folders with weights, in the
// syntax that MaxText uses for Grain: "folder1,0.7;folder2,0.3".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Bounds of a mixture of data sets (data/blend.h): the maximum number of data sets, and the number
// of parts to which weights are rounded (the smallest weight is one part).
constexpr size_t kBlendSourcesMax = 64;
constexpr uint64_t kBlendPeriodMax = 1'000'000;

// A data set and its share of the samples.
struct DataShare {
  std::string folder;
  double weight = 1;  // positive; the share of the samples is weight / (sum of all weights)

  friend bool operator==(const DataShare&, const DataShare&) = default;
};

// Parses a `dataset_path`. Returns InvalidArgument with the invalid part: a folder without a
// weight, a weight that is not positive or is below 1 / kBlendPeriodMax of the sum, or too many
// folders. Weights are not normalised. An empty text gives one empty folder.
absl::StatusOr<std::vector<DataShare>> parse_data_paths(std::string_view text);
// Formats shares so that parse_data_paths() returns them again.
std::string data_paths_text(const std::vector<DataShare>& shares);

}  // namespace muster::trainer

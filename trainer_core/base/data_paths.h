// Locations of training data: one folder of token shards, or several with weights in MaxText's
// syntax for Grain: "folder1,0.7;folder2,0.3".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Bounds of a blend (data/blend.h): the number of sources, and the resolution of their weights.
constexpr size_t kBlendSourcesMax = 64;
constexpr uint64_t kBlendPeriodMax = 1'000'000;

struct DataShare {
  std::string folder;
  double weight = 1;  // share of the samples, relative to the other weights

  friend bool operator==(const DataShare&, const DataShare&) = default;
};

// InvalidArgument names the invalid part: a folder without a weight, a weight that is not positive
// or too small relative to the others, too many folders. Weights keep their written values; an
// empty text is one empty folder.
absl::StatusOr<std::vector<DataShare>> parse_data_paths(std::string_view text);
// Inverse of parse_data_paths.
std::string data_paths_text(const std::vector<DataShare>& shares);

}  // namespace muster::trainer

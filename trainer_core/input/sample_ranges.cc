#include "trainer_core/input/sample_ranges.h"

#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/data_paths.h"
#include "trainer_core/data/blend.h"

namespace muster::trainer {

std::string describe_samples(const TrainConfig& config, uint64_t first, uint64_t end) {
  std::string text = absl::StrCat("global samples ", first, " to ", end - 1);
  if (config.dataset_type != DatasetType::kShards) return text;
  const auto shares = parse_data_paths(config.dataset_path);
  if (!shares.ok() || shares->size() < 2) return text;
  std::vector<double> weights;
  for (const DataShare& share : *shares) weights.push_back(share.weight);
  const Blend blend(weights);
  struct Draws {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  std::vector<Draws> draws(shares->size());
  for (uint64_t sample = first; sample < end; ++sample) {
    const Blend::Pick pick = blend(sample);
    Draws& source = draws[pick.source];
    if (source.count++ == 0) source.first = pick.number;
  }
  const char* separator = " (";
  for (size_t i = 0; i < draws.size(); ++i) {
    if (draws[i].count == 0) continue;
    absl::StrAppend(&text, separator, draws[i].count, " of ", (*shares)[i].folder, ": ",
                    draws[i].first, " to ", draws[i].first + draws[i].count - 1);
    separator = "; ";
  }
  return absl::StrCat(text, ")");
}

}  // namespace muster::trainer

// A model whose base has adapters merged into it (adapters.h).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "trainer_core/checkpoint/adapters.h"

namespace muster::trainer {

// W + (alpha / rank) B A. If the base was stored in blocks while the adapters were trained
// (lora_weight_qtype), W are the values of the blocks: the adapters have learned to correct them,
// and the merged model computes what the training computed.
class MergedSource : public ParameterSource {
 public:
  MergedSource(ParameterDescription description, AdaptersOnBase parts);

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override;
  // Reads tensors that differ from the base's completely; the base reads the others.
  absl::Status read_boxes(const std::vector<TensorBox>& boxes,
                          std::span<float> block) const override;

 private:
  // Adds scale B A to the rows of the projection.
  void add_product(const std::string& module, const ParamSpec& row, std::span<float> rows) const;

  AdaptersOnBase parts_;
  std::map<std::string, std::string> modules_;  // by the name of the weight
  std::set<std::string> in_blocks_;             // weights that are stored in blocks
};

}  // namespace muster::trainer

// Parses a model's name as users type it: names of AXLearn have suffixes that change settings
// (fuji-7B-v2-flash-single-host). Pure.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// The model's file, and the changes that suffixes make.
struct PresetName {
  std::string file;           // name of the model's file: "fuji-7B-v2" for models/fuji-7B-v2.yml
  int64_t batch_divisor = 1;  // divisor of global_batch_size
  bool fp8 = false;           // the suffix of AXLearn's FP8ConfigModifier is present
};

// Parses `name`. Returns InvalidArgument, with the reason, for a name of AXLearn that Muster does
// not support. Does not check that the file exists.
absl::StatusOr<PresetName> parse_preset_name(std::string_view name);

}  // namespace muster::jobspec

// A model's name as users type it: the file that describes it, and the changes by suffixes of
// AXLearn's names (fuji-7B-v2-flash-single-host). Pure.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::jobspec {

struct PresetName {
  std::string file;           // "fuji-7B-v2" for models/fuji-7B-v2.yml
  int64_t batch_divisor = 1;  // divides global_batch_size
  bool fp8 = false;           // AXLearn's FP8ConfigModifier
};

// InvalidArgument for a known name that is not supported, with the reason. Does not check that the
// file exists.
absl::StatusOr<PresetName> parse_preset_name(std::string_view name);

}  // namespace muster::jobspec

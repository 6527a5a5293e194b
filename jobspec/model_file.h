// Model presets: models/<name>.yml in the folder of the root base.yml. A file may inherit from
// others (inheritance.h). Its key left_out lists features of the original model that Muster lacks,
// as sentences or as {unless: "key=value", says: a sentence}. Its key follows is for models of Pax,
// which computes some values from others: `follows: {base_num_kv_heads: "base_num_query_heads"}`
// means that base_num_kv_heads gets the new value if a flag changes base_num_query_heads; a
// quotient is written "base_emb_dim / base_num_query_heads".
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/settings/settings.h"

namespace muster::jobspec {

// The requested preset.
struct ModelRequest {
  std::string config_folder;
  std::string name;  // the name as the user typed it (preset_name.h)
  bool override_model_config = false;
};

// Adds the model's values to `settings`, and returns warnings. For keys of a run
// (max_target_length, …), values from the command line, the environment and the user's file win.
// For keys of the architecture (base_*, vocab_size, …), such values must equal the model's value,
// unless override_model_config=true. Flags of Pax and AXLearn always win, as in those programs.
// Returns NotFound, with the nearest name, for an unknown model; InvalidArgument, with both values,
// for a conflict.
absl::StatusOr<std::vector<std::string>> apply_model_file(const ModelRequest& request,
                                                          Settings& settings);

// Returns the names of the presets in `folder`, sorted; none if it cannot be read.
std::vector<std::string> model_names(const std::filesystem::path& folder);

}  // namespace muster::jobspec

// Model presets: models/<name>.yml in the folder of the root base.yml. A file may build on others
// (inheritance.h) and may say what of the original it has to leave out (left_out: sentences, or
// {unless: "key=value", says: a sentence}). Pax computes
// some values of a model from others: `follows: {base_num_kv_heads: "base_num_query_heads"}` says which change with those
// that a flag changes; a quotient is written "base_emb_dim / base_num_query_heads".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/settings.h"

namespace muster::jobspec {

struct ModelRequest {
  std::string config_folder;
  std::string name;  // as the user types it; preset_name.h
  bool override_model_config = false;
};

// Lays the model's values over `settings`. Command line, environment and user file win for keys of a run
// (max_target_length); a key of the architecture (base_*, vocab_size, …) that the model's file has they may say only with the
// same value, or with override_model_config=true. Flags of Pax and AXLearn win always, as they do there. NotFound for an
// unknown model names the nearest; InvalidArgument names both values of a conflict. Returns warnings.
absl::StatusOr<std::vector<std::string>> apply_model_file(const ModelRequest& request,
                                                          Settings& settings);

}  // namespace muster::jobspec

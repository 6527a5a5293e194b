// Model presets: models/<name>.yml in the folder of the root base.yml. A file may build on others
// (inheritance.h), and may list features of the original that it omits (left_out: sentences, or
// {unless: "key=value", says: a sentence}). Pax computes some values of a model from others:
// `follows: {base_num_kv_heads: "base_num_query_heads"}` states which keys change with those that a
// flag changes; a quotient is written "base_emb_dim / base_num_query_heads".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/settings.h"

namespace muster::jobspec {

struct ModelRequest {
  std::string config_folder;
  std::string name;  // as typed by the user (preset_name.h)
  bool override_model_config = false;
};

// Adds the model's values to `settings`. The command line, the environment and the user's file win
// for keys of a run (max_target_length). For keys of the architecture (base_*, vocab_size, …) in
// the model's file they must have the same value, unless override_model_config=true. Flags of Pax
// and AXLearn always win, as in those programs. Returns warnings. NotFound for an unknown model
// names the nearest one; InvalidArgument names both values of a conflict.
absl::StatusOr<std::vector<std::string>> apply_model_file(const ModelRequest& request,
                                                          Settings& settings);

}  // namespace muster::jobspec

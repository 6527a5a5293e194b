// A row of `muster config show`: a key with the value that the job gets, and the value's origin.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "jobspec/resolve.h"

namespace muster::jobspec {

struct ExplainedKey {
  std::string key;
  std::string_view topic;  // the section of base.yml
  nlohmann::json value;    // the value that the job gets
  // "configs/base.yml:12", "command line", …; "derived" if resolve_job() has set the value.
  std::string origin;
  nlohmann::json stated;  // the value in the config, if it differs from `value`
  std::string stated_origin;
  // True if the user has changed the value: on the command line or in a config, from the value of
  // base.yml and the model's file; or in their own base.yml, from the value of Muster's base.yml.
  bool is_changed = false;
};

// Returns the config's keys in base.yml's order, and then, under the topic "Derived", further
// settings of the trainer.
std::vector<ExplainedKey> explain(const Config& config, const ResolvedJob& job);

}  // namespace muster::jobspec

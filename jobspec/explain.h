// The rows of `muster config show`: every key in base.yml's order, with the value that the job gets
// and its origin.
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
  // "configs/base.yml:12", "command line", …; "derived" if resolving has set it.
  std::string origin;
  nlohmann::json stated;  // the config's value, if `value` is derived from it
  std::string stated_origin;
  // The user has set another value than base.yml and the model's file.
  bool is_changed = false;
};

// Returns the keys of the config, and then, under the topic "Derived", further settings of the
// trainer.
std::vector<ExplainedKey> explain(const Config& config, const ResolvedJob& job);

}  // namespace muster::jobspec

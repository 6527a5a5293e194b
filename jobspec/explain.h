// What `muster config show` shows: every key in base.yml's order, with the value that the job gets and where it is from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "jobspec/resolve.h"

namespace muster::jobspec {

struct ExplainedKey {
  std::string key;
  std::string_view topic;  // base.yml's section
  nlohmann::json value;    // what the job gets
  std::string
      origin;  // "configs/base.yml:12", "command line", …; "derived" when resolving has filled it in
  nlohmann::json stated;  // what the config says, when `value` is derived from it
  std::string stated_origin;
  bool is_changed =
      false;  // the config says, or the job gets, something else than the root base.yml
};

// The keys of the config, and then, under the topic "Derived", what the trainer gets beyond them.
std::vector<ExplainedKey> explain(const Config& config, const ResolvedJob& job);

}  // namespace muster::jobspec

// Values of arguments and keys for the completion scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

// A value with a description, which some shells show beside it; may be empty.
struct CompletionValue {
  std::string value;
  std::string description;
};

// Values of an argument, as the scripts name them: "jobs" (newest first), "active-jobs" (those that
// have not ended), "nodes", or "key:NAME" for a config key.
constexpr std::string_view kJobValues = "jobs";
constexpr std::string_view kActiveJobValues = "active-jobs";
constexpr std::string_view kNodeValues = "nodes";
constexpr std::string_view kKeyValues = "key:";

// Returns the values of `kind`; none if there are none, `kind` is unknown, or the coordinator does
// not answer within two seconds. `line`: the command line as typed so far; its flags name the
// coordinator, as the environment does, and its config has models.
std::vector<CompletionValue> completion_values(std::string_view kind, const std::string& line);

}  // namespace muster::cli

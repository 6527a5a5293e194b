// The expectations of `muster convert --expect`: values of the source's model that the user states,
// for example because the command line of another converter states them.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// An expected value of a key of the model's config.
struct ExpectedValue {
  std::string origin;  // the user's words that state it, for messages; empty: --expect
  std::string key;     // a key of `muster config show`, such as base_num_decoder_layers
  std::string value;   // as in a config: a number, true, false or a name

  friend bool operator==(const ExpectedValue&, const ExpectedValue&) = default;
};

// Parses "[ORIGIN: ]KEY=VALUE[ KEY=VALUE]…". Returns InvalidArgument for another form.
absl::StatusOr<std::vector<ExpectedValue>> parse_expected(const std::string& text);

// Returns InvalidArgument, with both values, if the model of the source `from` has another value
// than an expected one, and for a key that no model has.
absl::Status check_expected(const ModelConfig& model, const std::string& from,
                            const std::vector<ExpectedValue>& expected);

}  // namespace muster::trainer

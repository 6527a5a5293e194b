#include "trainer_core/convert/expected_model.h"

#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {
namespace {

// Returns the value as a user types it.
std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

absl::Status unknown_key(const std::string& key, const nlohmann::json& model) {
  std::vector<std::string_view> keys;
  for (const auto& item : model.items()) keys.push_back(item.key());
  const std::string_view nearest = nearest_name(key, keys);
  return absl::InvalidArgumentError(
      absl::StrCat("--expect: no model has the key ", key,
                   nearest.empty() ? "" : absl::StrCat("; the nearest one is ", av(nearest))));
}

}  // namespace

absl::StatusOr<std::vector<ExpectedValue>> parse_expected(const std::string& text) {
  const size_t colon = text.find(": ");
  const std::string origin = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string pairs = colon == std::string::npos ? text : text.substr(colon + 2);
  std::vector<ExpectedValue> expected;
  for (const absl::string_view pair : absl::StrSplit(pairs, ' ', absl::SkipEmpty())) {
    const std::vector<std::string> sides = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (sides.size() != 2 || sides[0].empty() || sides[1].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--expect is \"", text, "\"; it must be KEY=VALUE, such as base_num_decoder_layers=32"));
    }
    expected.push_back({.origin = origin, .key = sides[0], .value = sides[1]});
  }
  return expected;
}

absl::Status check_expected(const ModelConfig& model, const std::string& from,
                            const std::vector<ExpectedValue>& expected) {
  const nlohmann::json values = to_json(model);
  for (const ExpectedValue& one : expected) {
    const auto found = values.find(one.key);
    if (found == values.end()) return unknown_key(one.key, values);
    const std::string actual = text_of(*found);
    if (actual == one.value) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(one.origin.empty() ? "--expect" : one.origin, " requires ", one.key, "=",
                     one.value, ", but ", from, " has ", one.key, "=", actual,
                     "; give the folder of the other model, or correct the value"));
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer

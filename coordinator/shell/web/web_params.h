// The parameters of a request: the query of a GET, the JSON object of a POST. Errors are
// InvalidArgument with the parameter, its value and what would be right.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "daemon/http_message.h"

namespace muster::coordinator {

// JavaScript's largest exact integer.
constexpr int64_t kExactMax = (int64_t{1} << 53) - 1;

// Decodes %41 and, in a query, + for a space.
absl::StatusOr<std::string> percent_decoded(std::string_view text, bool is_query);
// Parses a number in [min, max].
absl::StatusOr<int64_t> parse_number(std::string_view name, std::string_view text, int64_t min,
                                     int64_t max);

// The readers below collect the first error, so that a handler reads all parameters and then checks
// status() once.
class WebParams {
 public:
  // Parses a query.
  static absl::StatusOr<WebParams> of_query(std::string_view query);
  // Parses a body, which must be a JSON object.
  static absl::StatusOr<WebParams> of_body(const std::string& body);

  int64_t number(const std::string& name, int64_t min, int64_t max, int64_t otherwise);
  bool flag(const std::string& name, bool otherwise);
  // `bytes_max`: the maximum length.
  std::string text(const std::string& name, size_t bytes_max, const std::string& otherwise = {});
  // Returns an object of a body; null if it is missing.
  nlohmann::json object(const std::string& name);
  bool has(const std::string& name) const { return values_.contains(name); }

  // Returns the first error, or an error about a parameter that was not read.
  absl::Status status() const;

 private:
  const nlohmann::json* find(const std::string& name);
  void fail(const std::string& name, const nlohmann::json& value, std::string_view expected);

  bool is_query_ = false;
  std::map<std::string, nlohmann::json> values_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace muster::coordinator

#include "common/job/node_labels.h"

#include <algorithm>
#include <optional>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

constexpr size_t kPartBytesMax = 63;  // as in Kubernetes

bool is_part(std::string_view text, std::string_view more_characters) {
  return text.size() <= kPartBytesMax && std::ranges::all_of(text, [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  more_characters.find(c) != std::string_view::npos;
         });
}

struct Condition {
  std::string_view name, value;
  bool is_negated = false;
};

std::optional<Condition> parse(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  Condition condition{text.substr(0, equals), text.substr(equals + 1)};
  if (condition.name.ends_with('!')) {
    condition.is_negated = true;
    condition.name.remove_suffix(1);
  }
  const bool is_valid =
      !condition.name.empty() && is_part(condition.name, "._-/") && is_part(condition.value, "._-");
  return is_valid ? std::optional(condition) : std::nullopt;
}

absl::Status check(std::string_view field, std::string_view text, bool may_be_negated) {
  const auto condition = parse(text);
  if (condition && (may_be_negated || !condition->is_negated)) return absl::OkStatus();
  constexpr size_t kShownMax = 150;
  return absl::InvalidArgumentError(absl::StrCat(
      av(field), " is \"", absl::CHexEscape(av(text.substr(0, kShownMax))),
      "\": it must be NAME=VALUE", may_be_negated ? " or NAME!=VALUE" : "", ", each of at most ",
      kPartBytesMax, " of the characters A-Z a-z 0-9 . _ - (in the name also /)"));
}

}  // namespace

absl::Status check_label(std::string_view field, std::string_view label) {
  return check(field, label, /*may_be_negated=*/false);
}

absl::Status check_condition(std::string_view field, std::string_view condition) {
  return check(field, condition, /*may_be_negated=*/true);
}

bool holds(std::string_view condition, const std::map<std::string, std::string>& labels) {
  const auto parsed = parse(condition);
  if (!parsed) return false;
  const auto label =
      std::ranges::find_if(labels, [&](const auto& entry) { return entry.first == parsed->name; });
  return (label != labels.end() && label->second == parsed->value) != parsed->is_negated;
}

bool suits(const NodeLabels& node, const std::vector<std::string>& selector,
           const std::vector<std::string>& tolerations) {
  return std::ranges::all_of(selector,
                             [&](const std::string& one) { return holds(one, node.labels); }) &&
         std::ranges::all_of(node.taints, [&](const std::string& taint) {
           return std::ranges::find(tolerations, taint) != tolerations.end();
         });
}

std::string why_unsuitable(const NodeLabels& node, const std::vector<std::string>& selector,
                           const std::vector<std::string>& tolerations) {
  for (const std::string& condition : selector)
    if (!holds(condition, node.labels)) return absl::StrCat("it does not have ", condition);
  for (const std::string& taint : node.taints)
    if (std::ranges::find(tolerations, taint) == tolerations.end())
      return absl::StrCat("its taint ", taint, " is not tolerated");
  return "";
}

}  // namespace muster

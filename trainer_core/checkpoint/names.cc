#include "trainer_core/checkpoint/names.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/canonical_number.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

// The letters that mkstemp puts in place of "XXXXXX".
bool is_unique_part(std::string_view text) {
  constexpr size_t kLetters = 6;
  return text.size() == kLetters && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c));
         });
}

bool consume(std::string_view prefix, std::string_view& text) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Returns whether the text is `least` to `most` numbers with dashes between them.
bool are_numbers(std::string_view text, size_t least, size_t most) {
  const std::vector<absl::string_view> parts = absl::StrSplit(av(text), '-');
  return parts.size() >= least && parts.size() <= most &&
         std::ranges::all_of(parts, [](absl::string_view part) {
           return canonical_number<uint64_t>(sv(part)).has_value();
         });
}

}  // namespace

std::optional<int64_t> step_of_folder(std::string_view name) {
  const auto step = canonical_number<int64_t>(name);
  return step && *step >= 0 ? step : std::nullopt;
}

bool is_leftover(std::string_view name) {
  constexpr size_t kStepAndOwner = 4;  // step, job, attempt, incarnation
  if (consume(kTemporaryOwnerPrefix, name)) {
    const size_t last = name.rfind('-');
    return last != std::string_view::npos && is_unique_part(name.substr(last + 1)) &&
           are_numbers(name.substr(0, last), 2, 2);
  }
  if (!consume(kTemporaryPrefix, name)) return false;
  if (consume("probe-", name)) return is_unique_part(name);
  consume("removed-", name);
  return are_numbers(name, 1, kStepAndOwner);
}

bool is_aside(std::string_view name) {
  return consume(kAsidePrefix, name) && step_of_folder(name).has_value();
}

}  // namespace muster::trainer

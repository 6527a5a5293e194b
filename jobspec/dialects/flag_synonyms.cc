#include "jobspec/dialects/flag_synonyms.h"

#include <algorithm>
#include <string_view>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "jobspec/dialects/flag_table.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

bool is_pax_variable(const Flag& flag) {
  return std::ranges::any_of(pax_variables(), [&](const Flag& row) { return &row == &flag; });
}

// Two variables of Pax and of its Slurm scripts that set the same: LOG_DIR and LOG_DIR_LOCAL.
bool are_synonyms(const Flag& a, const Flag& b) {
  const bool is_special = a.effect == FlagEffect::kPaxLogs || a.effect == FlagEffect::kPaxData;
  return is_pax_variable(a) && is_pax_variable(b) && a.name != b.name && a.effect == b.effect &&
         (is_special || (!a.key.empty() && a.key == b.key));
}

bool is_of_wrapper(const GivenFlag& given) {
  const std::string_view name = given.flag->name;
  return name.starts_with("BASE_") || name.ends_with("_LOCAL");
}

}  // namespace

void put_wrapper_names_first(std::vector<GivenFlag>& given) {
  std::stable_partition(given.begin(), given.end(), is_of_wrapper);
}

void keep_last_of_repeated(std::vector<GivenFlag>& given) {
  for (auto flag = given.begin(); flag != given.end();) {
    const bool comes_again = std::any_of(
        flag + 1, given.end(), [&](const GivenFlag& later) { return later.shown == flag->shown; });
    flag = comes_again ? given.erase(flag) : flag + 1;
  }
}

void keep_one_of_synonyms(std::vector<GivenFlag>& given, std::vector<std::string>& warnings) {
  for (auto flag = given.begin(); flag != given.end();) {
    const auto other = std::find_if(flag + 1, given.end(), [&](const GivenFlag& later) {
      return are_synonyms(*flag->flag, *later.flag);
    });
    if (other == given.end()) {
      ++flag;
      continue;
    }
    if (other->value != flag->value) {
      const bool is_exported = absl::StartsWith(other->shown, "environment ");
      warnings.push_back(
          absl::StrCat(flag->shown, "=", show(flag->value), " is not used, but ", other->shown, "=",
                       show(other->value), ": they mean the same, and ",
                       is_exported ? "the program's own name wins over the one of its Slurm script"
                                   : "the last one on the line counts"));
    }
    flag = given.erase(flag);
  }
}

}  // namespace muster::jobspec

// Sets the fields of a scenario's job by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <absl/strings/str_split.h>

#include "common/job/job_spec.h"

namespace muster::coordinator {

// Applies FIELD=VALUE to a plain field of the job (kJobFields), and env:NAME=VALUE to a variable of
// its environment. A truth value is written true or false; the texts of a list are separated by
// commas. Returns whether the field exists.
inline bool set_job_field(const std::string& word, JobSpec& spec) {
  const size_t equals = word.find('=');
  const std::string text = word.substr(equals + 1);
  constexpr std::string_view kVariable = "env:";
  bool exists = word.starts_with(kVariable);
  if (exists) spec.environment[word.substr(kVariable.size(), equals - kVariable.size())] = text;
  for_each_job_field([&](const JobField& field, auto member) {
    if (field.name != word.substr(0, equals)) return;
    exists = true;
    auto& value = spec.*member;
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>) {
      value = text == "true";
    } else if constexpr (std::is_integral_v<Value>) {
      value = static_cast<Value>(std::stoll(text));
    } else if constexpr (std::is_same_v<Value, std::string>) {
      value = text;
    } else {
      value = absl::StrSplit(text, ',');
    }
  });
  return exists;
}

}  // namespace muster::coordinator

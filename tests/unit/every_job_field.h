// A job with a value other than the default in every field, so that a conversion that forgets one
// fails its test.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/job/job_spec.h"
#include "common/text/absl_view.h"

namespace muster {

// Sets every field of kJobFields: numbers differ from each other, texts are the field's name.
inline void set_plain_fields(JobSpec& spec) {
  int number = 100;
  for_each_job_field([&](const JobField& field, auto member) {
    auto& value = spec.*member;
    using Value = std::remove_reference_t<decltype(value)>;
    const std::string text = absl::StrCat("/the/", av(field.name));
    if constexpr (std::is_same_v<Value, bool>) {
      value = !value;
    } else if constexpr (std::is_integral_v<Value>) {
      value = ++number;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      value = text;
    } else {
      value = {text, "", "é"};
    }
  });
}

inline JobSpec job_with_every_field() {
  JobSpec spec;
  set_plain_fields(spec);
  spec.environment = {{"A", "b"}, {"C", ""}};
  spec.stack_traces = {.collect = true, .to_cloud = true, .interval_seconds = 7};
  spec.smaller = {{3, "{\"é\": 1}"}, {2, "{}"}};
  spec.dependencies = {{JobId(3), DependencyKind::kAfterOk},
                       {JobId(4), DependencyKind::kAfterAny},
                       {JobId(5), DependencyKind::kAfterNotOk}};
  return spec;
}

}  // namespace muster

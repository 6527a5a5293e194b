// What starts the other programs, in front of their flags. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// Takes `python3 -m paxml.main`, `python3 MaxText/train.py` and the like from the front of `words`; whether there was one.
// InvalidArgument for a program that is none of the three.
absl::StatusOr<bool> skip_launcher(std::vector<std::string>& words);

}  // namespace muster::jobspec

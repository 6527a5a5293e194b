// What starts the other programs, in front of their flags. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// Takes `python3 -m paxml.main`, `XLA_FLAGS=… python3 MaxText/train.py` and the like from the front of `words` and returns
// the NAME=VALUE words of the latter, which are for the ranks' environment; those that Pax reads itself stay in `words`.
// InvalidArgument for a program that is none of the three.
absl::StatusOr<std::vector<std::string>> skip_launcher(std::vector<std::string>& words);

}  // namespace muster::jobspec

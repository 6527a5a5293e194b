// What starts the other programs, in front of their flags. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

struct Launch {
  bool has_program = false;  // one of the three stood in front
  std::vector<std::string>
      environment;  // its NAME=VALUE words; those that Pax reads itself stay among the flags
};

// NAME=VALUE as a shell takes it in front of a command.
bool is_assignment(const std::string& word);

// Takes `python3 -m paxml.main`, `XLA_FLAGS=… python3 MaxText/train.py` and the like from the front of `words`.
// InvalidArgument for a program that is none of the three, and for what starts programs (bash, srun, …).
absl::StatusOr<Launch> skip_launcher(std::vector<std::string>& words);

// Why a variable for XLA, TPUs or Transformer Engine changes nothing here; empty for other names.
std::string_view why_without_effect(std::string_view variable);

}  // namespace muster::jobspec

// Environment variables that users of MaxText, Pax or the Slurm recipes set: their meaning here,
// and whether an exported variable affects a command line. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobspec/dialect.h"

namespace muster::jobspec {

// A row of `muster config show --variables`.
struct Variable {
  std::string_view name;     // "M_<KEY>" and "NCCL_*" stand for several
  std::string_view source;   // the program or script that defines it
  std::string_view meaning;  // a key, or why it has no effect
  std::string_view read_by;  // command lines and scripts that read it
};

std::span<const Variable> variables();

// Returns the NAME=VALUE words of exported variables that Pax's scripts would read and that change
// the job. Ignores empty values, and names that `words` sets.
std::vector<std::string> exported_words(const Environment& environment,
                                        const std::vector<std::string>& words);

// Returns one warning per exported variable that has no effect on a command line of `dialect`.
// Variables that other programs also use (CONTAINER, NUM_GPUS) cause none.
std::vector<std::string> exported_without_effect(const Environment& environment, Dialect dialect);

}  // namespace muster::jobspec

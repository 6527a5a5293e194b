// Removes the words in front of a pasted command line's flags that start the other program
// (MaxText, Pax, AXLearn). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

struct LauncherPrefix {
  bool has_program = false;  // the command line begins with one of the three known programs
  // The NAME=VALUE words in front of the program. Those that Pax itself reads are not included:
  // they remain among the flags.
  std::vector<std::string> environment;
};

// True for NAME=VALUE as a shell accepts it in front of a command.
bool is_assignment(const std::string& word);

// Removes `python3 -m paxml.main`, `XLA_FLAGS=… python3 MaxText/train.py` and the like from the
// front of `words`. InvalidArgument for other programs, and for words that start programs (bash,
// srun, …).
absl::StatusOr<LauncherPrefix> skip_launcher(std::vector<std::string>& words);

// Returns why a variable for XLA, TPUs or Transformer Engine has no effect here; empty for other
// names.
std::string_view why_without_effect(std::string_view variable);

// The same for a word of a command line: NAME=VALUE of such a variable, or a flag of XLA's
// (--xla_gpu_…), which users add to lines of every dialect.
std::string_view why_word_without_effect(const std::string& word);

// True for NCCL_…=VALUE, which belongs to the ranks' environment wherever it stands.
bool is_of_ranks(const std::string& word);

// Removes words without effect. Returns one warning per reason.
std::vector<std::string> remove_without_effect(std::vector<std::string>& words);

}  // namespace muster::jobspec

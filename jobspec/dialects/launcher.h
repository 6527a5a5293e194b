// Users paste command lines of MaxText, Pax and AXLearn after `muster run`. This file removes the
// words that start the other program, which stand in front of its flags. All functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// The facts about the removed words.
struct LauncherPrefix {
  bool has_program = false;  // the words start one of the three known programs
  // The NAME=VALUE words in front of the program, without variables that Pax reads: these remain
  // among the flags.
  std::vector<std::string> environment;
};

// Returns whether `word` is NAME=VALUE, as a shell accepts it in front of a command.
bool is_assignment(const std::string& word);

// Removes `python3 -m paxml.main`, `XLA_FLAGS=… python3 MaxText/train.py` and the like from the
// front of `words`. Returns InvalidArgument for other programs, for programs that start programs
// (bash, srun, …), and for words that are empty or blank: a pasted line that ends with a backslash
// and a blank has one.
absl::StatusOr<LauncherPrefix> skip_launcher(std::vector<std::string>& words);

// Returns the reason why an environment variable for XLA, TPUs or Transformer Engine has no effect
// in Muster; "" for other variables.
std::string_view why_without_effect(std::string_view variable);

// Returns the reason for a word of a command line: NAME=VALUE of such a variable, or a flag for XLA
// (--xla_gpu_…), which users add to lines of every dialect.
std::string_view why_word_without_effect(const std::string& word);

// Returns whether `word` is a flag for XLA, such as --xla_gpu_foo=1.
bool is_flag_without_effect(const std::string& word);

// Returns whether `word` is NCCL_…=VALUE, which becomes a variable of the ranks wherever it stands.
bool is_of_ranks(const std::string& word);

// Removes words without effect from `words`. Returns one warning per reason.
std::vector<std::string> remove_without_effect(std::vector<std::string>& words);

}  // namespace muster::jobspec

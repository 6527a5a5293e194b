// Users paste command lines of MaxText's, Pax's and Saxml's programs after `muster run`. This file
// handles programs that are not trainers, such as `python3 MaxText/decode.py …` and `python3 -m
// convert_llama_ckpt …`: it maps each command line to the equivalent command of `muster`, or
// refuses it with an error that names the alternative.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// A command line of `muster`.
struct MappedLine {
  std::vector<std::string> words;  // the arguments of `muster`
  std::string note;  // sentence for the user about flags that are not used; empty if none
};

// Returns the equivalent command for `words`, the arguments of `muster`. Returns `words` unchanged
// if they do not begin with `run`, `submit`, `plan` or `config show` and such a program, or if the
// user has typed `--` before the program. Returns InvalidArgument, with the alternatives, for a
// program, a mode or a flag without an equivalent. Programs that are not trainers are accepted only
// after `run`; MaxText's train_compile.py is also accepted after `plan`. Pure.
absl::StatusOr<MappedLine> map_entry_point(std::vector<std::string> words);

}  // namespace muster::cli

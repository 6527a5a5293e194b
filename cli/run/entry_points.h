// Programs of MaxText, Pax and Saxml beside their trainers, pasted behind `muster run`:
// `python3 MaxText/decode.py …`, `python3 -m convert_llama_ckpt …`. Each is mapped to the command
// that does its work, or refused with what there is in its place.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Returns the words of the command that does the work of the program in `words`, which are those
// behind `muster`. Returns them unchanged if they do not begin with `run` and such a program, or if
// the user typed `--` in front of it. InvalidArgument for a program, a mode or a flag without a
// counterpart; it names what exists. Pure.
absl::StatusOr<std::vector<std::string>> map_entry_point(std::vector<std::string> words);

}  // namespace muster::cli

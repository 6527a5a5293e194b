// Command lines of MaxText's, Pax's and Saxml's programs other than trainers, pasted after
// `muster run`: `python3 MaxText/decode.py …`, `python3 -m convert_llama_ckpt …`. Each is mapped to
// the equivalent command of `muster`, or refused with an error that names the alternative.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// `words` are the arguments of `muster`. Returns the arguments of the equivalent command. Returns
// `words` unchanged if they do not begin with `run`, `submit` or `config show` and such a program,
// or if the user typed `--` before the program. Returns InvalidArgument, with the alternatives, for
// a program, a mode or a flag without an equivalent; `submit` and `config show` take trainers
// alone. Pure.
absl::StatusOr<std::vector<std::string>> map_entry_point(std::vector<std::string> words);

}  // namespace muster::cli

// The flags of the converters of MaxText (llama_or_mistral_ckpt.py), Saxml (convert_llama_ckpt) and
// Pax (te_pax_t5x_ckpt_converter/converter/main.py). They state sizes that the source already
// contains. `muster convert` checks them, so that a wrong folder is an error and not a wrong model.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Flags by name, without dashes in front and with "-" instead of "_".
using ConverterFlags = std::map<std::string, std::string>;

// The meaning of a converter's flags for `muster convert`.
struct ConverterMeaning {
  std::vector<std::string> expected;  // values of --expect (muster convert)
  std::string note;  // sentence with the flags that are not used and why; empty if none
};

// Returns whether a flag of a converter takes no value.
bool is_converter_switch(std::string_view name);

// Returns the meaning of `flags`, which does not contain the flags of the source and of the result.
// `from` is the source, for messages. Returns InvalidArgument for an unknown flag, an unknown model
// size, adapters of LoRA, or T5X. Pure.
absl::StatusOr<ConverterMeaning> interpret_converter_flags(const std::string& from,
                                                           const ConverterFlags& flags);

}  // namespace muster::cli

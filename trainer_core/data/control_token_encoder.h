// Encodes texts that contain the control tokens of a tokenizer, as chat templates write them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/data/added_tokens.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Not thread-safe. The tokenizer must outlive the encoder.
class ControlTokenEncoder {
 public:
  explicit ControlTokenEncoder(const Tokenizer& tokenizer);

  // Appends the ids of `text`: the id of each control token in it, and the ids of the texts
  // between them.
  absl::Status append(std::string_view text, std::vector<int32_t>& ids);

 private:
  AddedTokens control_;
  std::unique_ptr<Tokenizer::Encoder> encoder_;
};

// Returns the text of the tokenizer's control token that begins a text, or that ends it; empty if
// it has none.
std::string sequence_token(const Tokenizer& tokenizer, bool begins);

}  // namespace muster::trainer

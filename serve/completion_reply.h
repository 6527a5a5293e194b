// Builds the JSON of responses. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer_core/data/tokenizer.h"
#include "trainer_core/generation/sampling.h"

namespace muster::serve {

// A token of a choice with log-probabilities.
struct TokenEntry {
  int32_t before = 0;  // the token before it; -1: none
  int32_t token = 0;
  // none: the first token of a prompt
  std::optional<trainer::PositionLogprobs> logprobs{};
  bool is_stop = false;  // it ended the output, of which it is no part: its text is empty
};

// A part of a choice, or all of it.
struct ChoicePart {
  int32_t index = 0;
  std::string text;
  bool has_logprobs = false;
  std::vector<TokenEntry> tokens{};
  size_t text_offset = 0;  // characters of the choice before the first of `tokens`
  std::string finish{};    // "stop" or "length"; empty: the choice continues
};

// The constants of one response.
struct ReplyFormat {
  bool is_chat = false;
  bool is_chunk = false;
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970

  // Returns a response with these choices, without usage.
  nlohmann::ordered_json response(const trainer::Tokenizer& tokenizer,
                                  const std::vector<ChoicePart>& choices) const;
  // Returns the first chunk of a choice of a chat.
  nlohmann::ordered_json role_chunk(int32_t index) const;

 private:
  nlohmann::ordered_json head() const;
};

nlohmann::ordered_json usage_json(int64_t prompt_tokens, int64_t output_tokens);

// Returns the number of characters of the texts of the tokens.
size_t characters_of(const trainer::Tokenizer& tokenizer, const std::vector<TokenEntry>& tokens);

// Returns the JSON as one line of valid UTF-8.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace muster::serve

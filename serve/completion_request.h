// Parses and checks the requests of the API. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "trainer_core/generation/sampling.h"

namespace muster::serve {

// The prompt of a completion: text, or tokens.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

// The request of POST /v1/completions or /v1/chat/completions.
struct CompletionRequest {
  std::string model;                // empty: the default
  std::vector<Prompt> prompts;      // completions
  nlohmann::ordered_json messages;  // chat completions
  std::optional<int32_t> max_tokens;
  int32_t choices = 1;  // per prompt
  trainer::SamplingOptions sampling;
  bool has_seed = false;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;
  bool ignore_eos = false;
  std::optional<int32_t> top_logprobs;
  bool echo = false;
  bool stream = false;
  bool stream_usage = false;  // a last chunk with the usage
};

// The result of parsing: a request, or the error to answer.
using ParsedRequest = std::variant<CompletionRequest, ApiError>;

ParsedRequest parse_completion(std::string_view body);
ParsedRequest parse_chat(std::string_view body);

}  // namespace muster::serve

#include "serve/completion_reply.h"

#include <algorithm>
#include <string_view>

#include "trainer_core/generation/text_stream.h"

namespace muster::serve {
namespace {

using Json = nlohmann::ordered_json;

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string text_of(const trainer::Tokenizer& tokenizer, const TokenEntry& entry, int32_t token) {
  if (entry.is_stop && token == entry.token) return "";
  return trainer::token_text(tokenizer, entry.before, token);
}

// The form of completions.
Json completion_logprobs(const trainer::Tokenizer& tokenizer, const ChoicePart& part) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  size_t offset = part.text_offset;
  for (const TokenEntry& entry : part.tokens) {
    const std::string text = text_of(tokenizer, entry, entry.token);
    tokens.push_back(text);
    offsets.push_back(offset);
    offset += characters(text);
    if (!entry.logprobs) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(entry.logprobs->chosen.logprob);
    Json top = Json::object();
    for (const trainer::TokenLogprob& one : entry.logprobs->top) {
      // Parts of characters may have the same text; the likeliest of them stays.
      const std::string name = text_of(tokenizer, entry, one.token);
      if (!top.contains(name)) top[name] = one.logprob;
    }
    if (!top.contains(text)) top[text] = entry.logprobs->chosen.logprob;
    tops.push_back(top);
  }
  return {{"tokens", tokens},
          {"token_logprobs", logprobs},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

Json chat_token(const trainer::Tokenizer& tokenizer, const TokenEntry& entry,
                const trainer::TokenLogprob& logprob) {
  const std::string text = text_of(tokenizer, entry, logprob.token);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text}, {"logprob", logprob.logprob}, {"bytes", bytes}};
}

// The form of chat completions.
Json chat_logprobs(const trainer::Tokenizer& tokenizer, const ChoicePart& part) {
  Json content = Json::array();
  for (const TokenEntry& entry : part.tokens) {
    if (!entry.logprobs) continue;
    Json token = chat_token(tokenizer, entry, entry.logprobs->chosen);
    token["top_logprobs"] = Json::array();
    for (const trainer::TokenLogprob& one : entry.logprobs->top)
      token["top_logprobs"].push_back(chat_token(tokenizer, entry, one));
    content.push_back(token);
  }
  return {{"content", content}};
}

}  // namespace

Json ReplyFormat::head() const {
  std::string object = "text_completion";
  if (is_chat) object = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
}

Json ReplyFormat::response(const trainer::Tokenizer& tokenizer,
                           const std::vector<ChoicePart>& choices) const {
  Json list = Json::array();
  for (const ChoicePart& part : choices) {
    Json choice = {{"index", part.index}};
    if (!is_chat) {
      choice["text"] = part.text;
    } else if (is_chunk) {
      choice["delta"] = part.text.empty() ? Json::object() : Json{{"content", part.text}};
    } else {
      choice["message"] = {{"role", "assistant"}, {"content", part.text}};
    }
    choice["logprobs"] = nullptr;
    if (part.has_logprobs)
      choice["logprobs"] =
          is_chat ? chat_logprobs(tokenizer, part) : completion_logprobs(tokenizer, part);
    choice["finish_reason"] = part.finish.empty() ? Json() : Json(part.finish);
    list.push_back(choice);
  }
  Json json = head();
  json["choices"] = list;
  return json;
}

Json ReplyFormat::role_chunk(int32_t index) const {
  Json json = head();
  json["choices"] = Json::array({{{"index", index},
                                  {"delta", {{"role", "assistant"}, {"content", ""}}},
                                  {"logprobs", nullptr},
                                  {"finish_reason", nullptr}}});
  return json;
}

Json usage_json(int64_t prompt_tokens, int64_t output_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", output_tokens},
          {"total_tokens", prompt_tokens + output_tokens}};
}

size_t characters_of(const trainer::Tokenizer& tokenizer, const std::vector<TokenEntry>& tokens) {
  size_t count = 0;
  for (const TokenEntry& entry : tokens)
    count += characters(text_of(tokenizer, entry, entry.token));
  return count;
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster::serve

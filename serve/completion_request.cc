#include "serve/completion_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "trainer_core/base/json_file.h"

namespace muster::serve {
namespace {

using Json = nlohmann::ordered_json;

// The limits of one request.
constexpr int32_t kChoicesMax = 128;  // prompts times choices
constexpr size_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 1024;
constexpr size_t kLogitBiasMax = 1024;
constexpr int32_t kTopLogprobsMax = 20;
constexpr int kDepthMax = 16;
// The maximum comparisons of keys of a body, some 30 ms: an object compares each new key with all
// of its others.
constexpr int64_t kKeyComparisonsMax = 4'000'000;

// The fields of both requests, of completions alone, and of chats alone.
constexpr auto kCommonFields = std::to_array<std::string_view>(
    {"model", "max_tokens", "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
     "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop", "stop_token_ids",
     "ignore_eos", "logprobs", "stream", "stream_options"});
constexpr auto kCompletionFields =
    std::to_array<std::string_view>({"prompt", "echo", "best_of", "suffix"});
constexpr auto kChatFields =
    std::to_array<std::string_view>({"messages", "max_completion_tokens", "top_logprobs"});
// Fields of OpenAI that change nothing.
constexpr auto kIgnoredFields =
    std::to_array<std::string_view>({"user", "metadata", "safety_identifier", "prompt_cache_key"});

// Fields of OpenAI of which only these values, in JSON, are supported: they change nothing.
struct NeutralField {
  std::string_view name;
  std::vector<absl::string_view> values;
};
const std::vector<NeutralField>& neutral_fields() {
  static const std::vector<NeutralField> fields = {
      {"store", {"false"}},
      {"service_tier", {R"("auto")", R"("default")"}},
      {"tools", {"[]"}},
      {"tool_choice", {R"("none")", R"("auto")"}},
      {"functions", {"[]"}},
      {"function_call", {R"("none")", R"("auto")"}},
      {"parallel_tool_calls", {"true", "false"}},
      {"reasoning_effort", {R"("none")"}},
      {"verbosity", {R"("medium")"}},
      {"modalities", {R"(["text"])"}},
      {"response_format", {R"({"type":"text"})"}},
  };
  return fields;
}

// Thrown by the reader below, and caught where the request is parsed.
struct BadField {
  ApiError error;
};

[[noreturn]] void refuse(std::string_view field, std::string message) {
  throw BadField{{.status = 400, .message = std::move(message), .param = std::string(field)}};
}

std::string shown(const Json& value) { return trainer::show_json(nlohmann::json(value)); }

// Strings of a request need not be UTF-8.
std::string compact(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Reads fields; a null field is one that is not given.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  const Json* find(std::string_view name) const {
    const auto found = body_.find(std::string(name));
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  double number(std::string_view name, double otherwise, double min, double max) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || value->get<double>() < min || value->get<double>() > max)
      refuse(name, absl::StrCat(av(name), " is ", shown(*value), "; it must be a number from ", min,
                                " to ", max));
    return value->get<double>();
  }
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits =
        value->is_number_integer() &&
        (!value->is_number_unsigned() ||
         value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) &&
        value->get<int64_t>() >= min && value->get<int64_t>() <= max;
    if (!fits)
      refuse(name, absl::StrCat(av(name), " is ", shown(*value),
                                "; it must be a whole number from ", min, " to ", max));
    return value->get<int64_t>();
  }
  bool boolean(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean())
      refuse(name, absl::StrCat(av(name), " is ", shown(*value), "; it must be true or false"));
    return value->get<bool>();
  }
  std::string text(std::string_view name) const {
    const Json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string())
      refuse(name, absl::StrCat(av(name), " is ", shown(*value), "; it must be a text"));
    return value->get<std::string>();
  }
  void check_known(std::span<const std::string_view> own,
                   std::span<const std::string_view> other) const {
    std::vector<std::string_view> known(kCommonFields.begin(), kCommonFields.end());
    known.insert(known.end(), own.begin(), own.end());
    known.insert(known.end(), kIgnoredFields.begin(), kIgnoredFields.end());
    for (const NeutralField& field : neutral_fields()) known.push_back(field.name);
    for (const auto& [name, value] : body_.items()) {
      if (std::ranges::find(known, name) != known.end() || value.is_null()) continue;
      std::string why = absl::StrCat("unknown field ", shown(Json(name)));
      if (std::ranges::find(other, name) != other.end()) {
        absl::StrAppend(&why, ": it belongs to the other kind of completions");
      } else if (const std::string_view near = nearest_name(name, known); !near.empty()) {
        absl::StrAppend(&why, "; did you mean ", av(near), "?");
      }
      refuse(name, why);
    }
    for (const auto& [name, values] : neutral_fields()) {
      const Json* value = find(name);
      if (value == nullptr || std::ranges::count(values, compact(*value)) > 0) continue;
      refuse(name, absl::StrCat(av(name), " is ", shown(*value), "; only ",
                                absl::StrJoin(values, " or "), " is supported"));
    }
  }

 private:
  const Json& body_;
};

std::vector<int32_t> token_list(std::string_view name, const Json& list) {
  std::vector<int32_t> tokens;
  for (const Json& item : list) {
    const bool fits = item.is_number_integer() && item.get<int64_t>() >= 0 &&
                      item.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) refuse(name, absl::StrCat(av(name), " has ", shown(item), " among its token ids"));
    tokens.push_back(item.get<int32_t>());
  }
  return tokens;
}

std::vector<Prompt> read_prompts(const Fields& fields) {
  constexpr std::string_view kWanted =
      "it must be a text, a list of texts, a list of token ids, or a list of such lists";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) refuse("prompt", absl::StrCat("prompt is missing; ", av(kWanted)));
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array() || prompt->empty())
    refuse("prompt", absl::StrCat("prompt is ", shown(*prompt), "; ", av(kWanted)));
  if (prompt->front().is_number()) return {token_list("prompt", *prompt)};
  std::vector<Prompt> prompts;
  for (const Json& item : *prompt) {
    if (item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (item.is_array()) {
      prompts.emplace_back(token_list("prompt", item));
    } else {
      refuse("prompt", absl::StrCat("prompt has ", shown(item), "; ", av(kWanted)));
    }
  }
  return prompts;
}

std::vector<std::string> read_stops(const Fields& fields) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return {};
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kStopsMax)
    refuse("stop", absl::StrCat("stop has ", list.size(), " texts; at most ", kStopsMax));
  std::vector<std::string> stops;
  for (const Json& item : list) {
    if (!item.is_string() || item.get_ref<const std::string&>().size() > kStopBytesMax)
      refuse("stop", absl::StrCat("stop has ", shown(item),
                                  "; it must be a text, or a list of texts, "
                                  "of at most ",
                                  kStopBytesMax, " bytes"));
    if (!item.get_ref<const std::string&>().empty()) stops.push_back(item.get<std::string>());
  }
  return stops;
}

std::map<int32_t, double> read_bias(const Fields& fields) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return {};
  if (!bias->is_object() || bias->size() > kLogitBiasMax)
    refuse("logit_bias", absl::StrCat("logit_bias must be an object of at most ", kLogitBiasMax,
                                      " token ids with numbers"));
  std::map<int32_t, double> result;
  for (const auto& [name, value] : bias->items()) {
    int32_t token = -1;
    const auto end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, token);
    const bool is_token = parsed.ec == std::errc() && parsed.ptr == end && token >= 0;
    if (!is_token || !value.is_number() || std::abs(value.get<double>()) > 100)
      refuse("logit_bias", absl::StrCat("logit_bias has ", shown(Json(name)), ": ", shown(value),
                                        "; it must be a token id with a number from -100 to 100"));
    result[token] = value.get<double>();
  }
  return result;
}

void read_stream(const Fields& fields, CompletionRequest& request) {
  request.stream = fields.boolean("stream");
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object())
    refuse("stream_options", absl::StrCat("stream_options is ", shown(*options),
                                          "; it must be an object, such as {\"include_usage\": "
                                          "true}"));
  request.stream_usage = Fields(*options).boolean("include_usage");
}

CompletionRequest read_common(const Fields& fields) {
  constexpr int64_t kCountMax = std::numeric_limits<int32_t>::max();
  CompletionRequest request;
  request.model = fields.text("model");
  if (const auto count = fields.integer("max_tokens", 0, kCountMax))
    request.max_tokens = static_cast<int32_t>(*count);
  request.choices = static_cast<int32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  trainer::SamplingOptions& sampling = request.sampling;
  sampling.temperature = fields.number("temperature", 1, 0, 100);
  sampling.top_p = fields.number("top_p", 1, 0, 1);
  // -1: all tokens, as in vLLM
  sampling.top_k = static_cast<int32_t>(
      std::max<int64_t>(fields.integer("top_k", -1, kCountMax).value_or(0), 0));
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  sampling.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  sampling.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  sampling.logit_bias = read_bias(fields);
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max())) {
    sampling.seed = static_cast<uint64_t>(*seed);
    request.has_seed = true;
  }
  request.stops = read_stops(fields);
  if (const Json* tokens = fields.find("stop_token_ids")) {
    if (!tokens->is_array() || tokens->size() > kStopsMax)
      refuse("stop_token_ids",
             absl::StrCat("stop_token_ids must be a list of at most ", kStopsMax, " token ids"));
    request.stop_tokens = token_list("stop_token_ids", *tokens);
  }
  request.ignore_eos = fields.boolean("ignore_eos");
  read_stream(fields, request);
  return request;
}

CompletionRequest read_completion(const Fields& fields) {
  fields.check_known(kCompletionFields, kChatFields);
  CompletionRequest request = read_common(fields);
  request.prompts = read_prompts(fields);
  request.echo = fields.boolean("echo");
  if (const auto count = fields.integer("logprobs", 0, kTopLogprobsMax))
    request.top_logprobs = static_cast<int32_t>(*count);
  if (fields.integer("best_of", 1, kChoicesMax).value_or(request.choices) != request.choices)
    refuse("best_of", "best_of must be n: all choices are returned");
  if (!fields.text("suffix").empty()) refuse("suffix", "suffix is not supported");
  const size_t choices = request.prompts.size() * static_cast<size_t>(request.choices);
  if (choices > static_cast<size_t>(kChoicesMax))
    refuse("prompt", absl::StrCat("the request has ", choices, " prompts times choices; at most ",
                                  kChoicesMax));
  if (request.max_tokens == 0 && !request.echo)
    refuse("max_tokens", "max_tokens is 0; without echo it must be at least 1");
  return request;
}

// Checks the messages, whose content may be a list of texts.
Json read_messages(const Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    refuse("messages", "messages must be a list of at least one object with role and content");
  Json result = *messages;
  for (size_t i = 0; i < result.size(); ++i) {
    Json& message = result[i];
    const std::string name = absl::StrCat("messages[", i, "]");
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse(name, absl::StrCat(name, " must be an object with a role, such as \"user\""));
    Json& content = message["content"];
    if (content.is_array()) {
      std::string text;
      for (const Json& part : content) {
        if (!part.is_object() || !part.contains("type") || part["type"] != "text" ||
            !part.contains("text") || !part["text"].is_string())
          refuse(name, absl::StrCat(name, " has content ", shown(part),
                                    "; only parts of type text are supported"));
        text += part["text"].get<std::string>();
      }
      content = text;
    }
    if (!content.is_string())
      refuse(name, absl::StrCat(name, " has no content; it must be a text"));
  }
  return result;
}

CompletionRequest read_chat(const Fields& fields) {
  fields.check_known(kChatFields, kCompletionFields);
  CompletionRequest request = read_common(fields);
  request.messages = read_messages(fields);
  if (const auto count = fields.integer("max_completion_tokens", 1, 1 << 30))
    request.max_tokens = static_cast<int32_t>(*count);
  if (request.max_tokens == 0) refuse("max_tokens", "max_tokens is 0; it must be at least 1");
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  const bool logprobs = fields.boolean("logprobs");
  if (top && !logprobs) refuse("top_logprobs", "top_logprobs requires logprobs: true");
  if (logprobs) request.top_logprobs = static_cast<int32_t>(top.value_or(0));
  return request;
}

// Returns why a body is not parsed: the parser recurses into lists and objects, and its objects
// compare their keys. Empty: it is parsed.
std::string why_refused(std::string_view body) {
  int depth = 0;
  std::array<int64_t, kDepthMax + 1> keys{};  // the number at each depth
  int64_t comparisons = 0;
  bool in_text = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDepthMax) return absl::StrCat("the body is nested deeper than ", kDepthMax);
      keys[static_cast<size_t>(depth)] = 0;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
    } else if (c == ':') {
      comparisons += keys[static_cast<size_t>(depth)]++;
      if (comparisons > kKeyComparisonsMax) return "the objects of the body have too many fields";
    }
  }
  return "";
}

ParsedRequest parse(std::string_view body, CompletionRequest (*read)(const Fields&)) {
  if (std::string why = why_refused(body); !why.empty()) return ApiError{.message = std::move(why)};
  try {
    const Json json = Json::parse(body);
    if (!json.is_object()) return ApiError{.message = "the body must be a JSON object"};
    return read(Fields(json));
  } catch (const BadField& bad) {
    return bad.error;
  } catch (const Json::exception& error) {
    return ApiError{.message = absl::StrCat("the body is not JSON: ", error.what())};
  }
}

}  // namespace

ParsedRequest parse_completion(std::string_view body) { return parse(body, read_completion); }
ParsedRequest parse_chat(std::string_view body) { return parse(body, read_chat); }

}  // namespace muster::serve

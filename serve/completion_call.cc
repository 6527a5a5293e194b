#include "serve/completion_call.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <absl/strings/str_cat.h>

#include "common/random/philox.h"

namespace muster::serve {
namespace {

// The maximum of the log-probabilities of a response, or of its tokens without log-probabilities.
// All of them are in memory until the response is complete.
constexpr int64_t kReplyEntriesMax = 1 << 20;

// Returns a seed for each choice of a request; the first one has the request's own.
uint64_t seed_of(uint64_t seed, size_t choice) {
  if (choice == 0) return seed;
  constexpr uint64_t kChoiceStream = uint64_t{4} << 48;
  const Philox::Block block = Philox{.key = seed, .stream = kChoiceStream}(choice);
  return uint64_t{block[0]} << 32 | block[1];
}

std::string event_text(const nlohmann::ordered_json& json) {
  return absl::StrCat("data: ", json_text(json), "\n\n");
}

}  // namespace

absl::Status CompletionCall::prepare(const EngineThread& engine, bool is_chat,
                                     std::span<const std::vector<int32_t>> tokens,
                                     CompletionRequest& request) {
  const int32_t context = engine.context();
  for (const std::vector<int32_t>& prompt : tokens) {
    if (auto status = engine.check(prompt); !status.ok()) return status;
  }
  if (!request.max_tokens) {
    // OpenAI's defaults: 16 for completions, and the rest of the context for chats.
    constexpr int32_t kDefaultTokens = 16;
    const int32_t rest = context - static_cast<int32_t>(tokens[0].size());
    request.max_tokens = is_chat ? std::max(1, rest) : kDefaultTokens;
  }
  const int64_t values = request.top_logprobs.value_or(0) + 1;
  int64_t entries = 0;
  for (const std::vector<int32_t>& prompt : tokens) {
    const auto length = static_cast<int64_t>(prompt.size());
    // The last token is not read by the model.
    if (length + *request.max_tokens > int64_t{context} + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt has ", length, " tokens and max_tokens is ", *request.max_tokens,
                       "; together they exceed the context of ", context, " tokens"));
    }
    entries += request.choices * (*request.max_tokens + (request.echo ? length : 0)) * values;
  }
  if (entries > kReplyEntriesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the response may have ", entries, " tokens times log-probabilities; at most ",
                     kReplyEntriesMax, ": lower n, max_tokens or logprobs, or divide the prompts"));
  }
  return absl::OkStatus();
}

CompletionCall::CompletionCall(Api& api, std::shared_ptr<Exchange> exchange,
                               CompletionRequest request, std::vector<std::vector<int32_t>> tokens,
                               ReplyFormat format, uint64_t seed, int32_t adapter)
    : api_(api),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      tokens_(std::move(tokens)),
      format_(std::move(format)),
      seed_(seed),
      adapter_(adapter) {
  for (size_t prompt = 0; prompt < tokens_.size(); ++prompt) {
    const std::string text = request_.echo ? prompt_text(prompt) : "";
    for (int32_t i = 0; i < request_.choices; ++i) {
      Choice choice{.prompt = prompt,
                    .stream = {api.tokenizer(), tokens_[prompt], request_.stops},
                    .last = tokens_[prompt].back(),
                    .unsent = text};
      if (request_.echo && has_logprobs()) add_prompt_entry(choice, std::nullopt);
      choices_.push_back(std::move(choice));
    }
  }
  unfinished_ = choices_.size();
}

std::string CompletionCall::prompt_text(size_t prompt) const {
  const auto* const text = std::get_if<std::string>(&request_.prompts[prompt]);
  return text != nullptr ? *text : api_.tokenizer().decode(tokens_[prompt]).value_or("");
}

trainer::GenerationRequest CompletionCall::request_of(size_t index) const {
  trainer::GenerationRequest request{.prompt = tokens_[choices_[index].prompt],
                                     .max_tokens = *request_.max_tokens,
                                     .sampling = request_.sampling,
                                     .stop_tokens = request_.stop_tokens,
                                     .top_logprobs = request_.top_logprobs,
                                     .prompt_logprobs = request_.echo && has_logprobs(),
                                     .adapter = adapter_};
  request.sampling.seed = seed_of(seed_, index);
  if (const int32_t eos = api_.tokenizer().eos_id(); eos >= 0 && !request_.ignore_eos)
    request.stop_tokens.push_back(eos);
  return request;
}

void CompletionCall::start() {
  exchange_->on_left([self = weak_from_this()] {
    if (const auto call = self.lock()) call->on_left();
  });
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].id = api_.add_output(shared_from_this(), i);
    api_.engine().submit(choices_[i].id, request_of(i));
  }
  if (!request_.stream) return;
  exchange_->begin_stream();
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (format_.is_chat)
      exchange_->send(event_text(format_.role_chunk(static_cast<int32_t>(i))));
    else if (!choices_[i].unsent.empty() && !has_logprobs())
      send_part(i);
  }
}

void CompletionCall::on_event(size_t index, const trainer::GenerationEvent& event) {
  Choice& choice = choices_[index];
  if (left_ || !choice.finish.empty()) return;
  if (request_.echo) {
    for (const trainer::PositionLogprobs& logprobs : event.prompt_logprobs)
      add_prompt_entry(choice, logprobs);
  }
  if (event.token) {
    add_token(choice, event);
  } else if (event.logprobs) {
    choice.entries.push_back(
        {choice.last, event.logprobs->chosen.token, event.logprobs, /*is_stop=*/true});
  }
  if (choice.stream.stopped()) {
    api_.engine().cancel(choice.id);
    end_choice(choice, "stop");
  } else if (event.end) {
    choice.unsent += choice.stream.finish();
    const bool stop = choice.stream.stopped() || *event.end == trainer::EndReason::kStop;
    end_choice(choice, stop ? "stop" : "length");
  }
  const bool has_part = !choice.unsent.empty() || !choice.finish.empty() || !choice.entries.empty();
  if (request_.stream && has_part) send_part(index);
  if (unfinished_ == 0 && !left_) finish();
}

void CompletionCall::add_prompt_entry(Choice& choice,
                                      const std::optional<trainer::PositionLogprobs>& logprobs) {
  const std::vector<int32_t>& prompt = tokens_[choice.prompt];
  const size_t at = choice.reported++;
  choice.entries.push_back({at == 0 ? -1 : prompt[at - 1], prompt[at], logprobs});
}

void CompletionCall::add_token(Choice& choice, const trainer::GenerationEvent& event) {
  if (output_tokens_++ == 0) api_.metrics().observe_first_token(monotonic_now() - began_);
  choice.unsent += choice.stream.push(*event.token);
  if (event.logprobs) choice.entries.push_back({choice.last, *event.token, event.logprobs});
  choice.last = *event.token;
}

void CompletionCall::end_choice(Choice& choice, const char* finish) {
  choice.finish = finish;
  api_.remove_output(choice.id);
  --unfinished_;
}

ChoicePart CompletionCall::take_part(size_t index) {
  Choice& choice = choices_[index];
  ChoicePart part{.index = static_cast<int32_t>(index),
                  .text = std::exchange(choice.unsent, ""),
                  .has_logprobs = has_logprobs(),
                  .tokens = std::exchange(choice.entries, {}),
                  .text_offset = choice.characters,
                  .finish = choice.finish};
  choice.characters += characters_of(api_.tokenizer(), part.tokens);
  return part;
}

void CompletionCall::send_part(size_t index) {
  auto json = format_.response(api_.tokenizer(), {take_part(index)});
  if (request_.stream_usage) json["usage"] = nullptr;
  exchange_->send(event_text(json));
}

void CompletionCall::finish() {
  int64_t prompt_tokens = 0;
  for (const std::vector<int32_t>& prompt : tokens_)
    prompt_tokens += static_cast<int64_t>(prompt.size());
  api_.metrics().observe_request(monotonic_now() - began_);
  api_.metrics().count_request(200);
  if (request_.stream) {
    if (request_.stream_usage) {
      auto json = format_.response(api_.tokenizer(), {});
      json["usage"] = usage_json(prompt_tokens, output_tokens_);
      exchange_->send(event_text(json));
    }
    exchange_->send("data: [DONE]\n\n");
    exchange_->end_stream();
    return;
  }
  std::vector<ChoicePart> parts;
  for (size_t i = 0; i < choices_.size(); ++i) parts.push_back(take_part(i));
  auto json = format_.response(api_.tokenizer(), parts);
  json["usage"] = usage_json(prompt_tokens, output_tokens_);
  exchange_->reply({.body = json_text(json) + "\n"});
}

void CompletionCall::fail(const std::string& why) {
  if (left_) return;
  left_ = true;
  const ApiError error{.status = 503, .message = why};
  api_.metrics().count_request(error.status);
  if (!request_.stream) return exchange_->reply({.status = error.status, .body = error.body()});
  // The status of a stream was sent at its beginning.
  exchange_->send(absl::StrCat("data: ", error.body(), "\n\n"));
  exchange_->end_stream();
}

void CompletionCall::on_left() {
  const auto self = shared_from_this();
  left_ = true;
  for (Choice& choice : choices_) {
    if (!choice.finish.empty()) continue;
    api_.engine().cancel(choice.id);
    api_.remove_output(choice.id);
  }
}

}  // namespace muster::serve

// One request for completions, from its submission to the end of its response. Used on the server's
// thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/time/time.h"
#include "serve/api.h"
#include "serve/completion_reply.h"
#include "trainer_core/generation/text_stream.h"

namespace muster::serve {

class CompletionCall : public std::enable_shared_from_this<CompletionCall> {
 public:
  // Sets max_tokens if the request has none, and returns the error of a request that cannot be
  // computed. `tokens`: those of each prompt. Called before the construction, which is expensive.
  static absl::Status prepare(const EngineThread& engine, bool is_chat,
                              std::span<const std::vector<int32_t>> tokens,
                              CompletionRequest& request);

  // The request has passed prepare(). `api` must outlive the call. `adapter`: that of the engine's
  // requests.
  CompletionCall(Api& api, std::shared_ptr<Exchange> exchange, CompletionRequest request,
                 std::vector<std::vector<int32_t>> tokens, ReplyFormat format, uint64_t seed,
                 int32_t adapter);

  // Submits the outputs.
  void start();
  void on_event(size_t choice, const trainer::GenerationEvent& event);
  // Ends the response with an error, after the engine has failed.
  void fail(const std::string& why);

 private:
  struct Choice {
    size_t prompt;
    trainer::TextStream stream;
    CallId id = 0;
    size_t reported = 0;                // tokens of the prompt that are in entries
    int32_t last = 0;                   // the last token
    size_t characters = 0;              // the characters of all entries so far
    std::string unsent;                 // text that is not in the response yet
    std::vector<TokenEntry> entries{};  // not in the response yet
    std::string finish{};               // empty: it continues
  };

  // Returns the text of a prompt, which `echo` returns.
  std::string prompt_text(size_t prompt) const;
  trainer::GenerationRequest request_of(size_t choice) const;
  void add_prompt_entry(Choice& choice, const std::optional<trainer::PositionLogprobs>& logprobs);
  void add_token(Choice& choice, const trainer::GenerationEvent& event);
  void end_choice(Choice& choice, const char* finish);
  void send_part(size_t index);
  ChoicePart take_part(size_t index);
  void finish();
  void on_left();
  bool has_logprobs() const { return request_.top_logprobs.has_value(); }

  Api& api_;
  std::shared_ptr<Exchange> exchange_;
  CompletionRequest request_;
  std::vector<std::vector<int32_t>> tokens_;
  ReplyFormat format_;
  uint64_t seed_;
  int32_t adapter_;
  Instant began_ = monotonic_now();
  std::vector<Choice> choices_;
  size_t unfinished_ = 0;
  int64_t output_tokens_ = 0;
  bool left_ = false;
};

}  // namespace muster::serve

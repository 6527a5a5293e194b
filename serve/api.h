// The API: answers requests by the engine. Used on the server's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/trust_files.h"
#include "serve/chat_prompt.h"
#include "serve/completion_request.h"
#include "serve/engine_thread.h"
#include "serve/exchange.h"
#include "serve/metrics.h"
#include "trainer_core/data/text_start.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::serve {

class CompletionCall;

// A model that requests may name: the base, or one of its adapters.
struct ServedModel {
  std::string name;
  trainer::TextStart start;  // how its texts begin
};

struct ApiOptions {
  std::vector<ServedModel> models;         // the base, then the adapters in the engine's order
  std::set<daemon::TokenDigest> api_keys;  // empty: requests need no key
  // Maximum outputs that run or wait; a request above it is answered with 429.
  size_t outputs_max = 0;
  uint64_t seed = 0;  // the source of the seeds of requests without a seed
};

class Api {
 public:
  // `tokenizer`, `engine` and `metrics` must outlive the API. `connections` returns the number of
  // open connections.
  Api(ApiOptions options, const trainer::Tokenizer& tokenizer, ChatTemplate chat_template,
      Metrics& metrics, std::function<size_t()> connections);
  // Called once, before the first request.
  void attach(EngineThread& engine) { engine_ = &engine; }

  // The functions of Session::Handlers.
  std::unique_ptr<HttpReply> admit(const HttpRequest& request, const std::string& authorization);
  void handle(std::shared_ptr<Exchange> exchange);

  // Passes events of the engine to their calls.
  void deliver(const std::vector<CallEvent>& events);
  // Makes /healthz report that the server ends, and refuses new completions.
  void drain() { draining_ = true; }
  // Does the same after the engine has failed, and answers the requests that run with 503.
  void fail(const std::string& why);
  bool is_idle() const { return calls_.empty(); }

  // For calls:
  const trainer::Tokenizer& tokenizer() const { return tokenizer_; }
  EngineThread& engine() { return *engine_; }
  Metrics& metrics() { return metrics_; }
  CallId add_output(std::shared_ptr<CompletionCall> call, size_t choice);
  void remove_output(CallId id) { calls_.erase(id); }

 private:
  using Call = std::pair<std::shared_ptr<CompletionCall>, size_t>;

  bool has_key(std::string_view authorization) const;
  void respond(Exchange& exchange, HttpReply reply);
  void respond(Exchange& exchange, const ApiError& error);
  void show_models(Exchange& exchange, const std::string& id);
  // Returns the index of a model; nullopt after the error has been answered.
  std::optional<size_t> find_model(Exchange& exchange, const std::string& name);
  nlohmann::ordered_json model_json(size_t model) const;
  void complete(const std::shared_ptr<Exchange>& exchange, bool is_chat);
  // Converts the prompts of a request for a model to tokens. Returns the error to answer.
  absl::Status tokenize(CompletionRequest& request, const ServedModel& model, bool is_chat,
                        std::vector<std::vector<int32_t>>& tokens) const;

  const ApiOptions options_;
  const trainer::Tokenizer& tokenizer_;
  const ChatTemplate chat_template_;
  Metrics& metrics_;
  std::function<size_t()> connections_;
  EngineThread* engine_ = nullptr;
  int64_t created_;  // seconds since 1970
  bool draining_ = false;
  std::string failure_;  // empty: the engine works
  CallId next_call_ = 1;
  uint64_t next_request_ = 0;
  std::unordered_map<CallId, Call> calls_;
};

}  // namespace muster::serve

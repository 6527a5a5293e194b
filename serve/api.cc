#include "serve/api.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include <absl/strings/str_cat.h>

#include "common/random/philox.h"
#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "common/time/time.h"
#include "serve/completion_call.h"
#include "trainer_core/generation/adapter_files.h"
#include "trainer_core/generation/prompt.h"

namespace muster::serve {
namespace {

constexpr std::string_view kKeyScheme = "Bearer ";
constexpr std::string_view kModelsPath = "/v1/models";

// The pages of the server.
enum class Page { kCompletions, kChat, kModels, kHealth, kMetrics, kUnknown };

Page served_page(std::string_view path) {
  if (path == "/v1/completions") return Page::kCompletions;
  if (path == "/v1/chat/completions") return Page::kChat;
  if (path == "/healthz") return Page::kHealth;
  if (path == "/metrics") return Page::kMetrics;
  const bool models = path.starts_with(kModelsPath) &&
                      (path.size() == kModelsPath.size() || path[kModelsPath.size()] == '/');
  return models ? Page::kModels : Page::kUnknown;
}

// The maximum bytes of a model's name in an error: names of adapters have at most 64.
constexpr size_t kShownNameBytes = 100;

std::string shown_name(const std::string& name) {
  return name.size() > kShownNameBytes ? name.substr(0, kShownNameBytes) + "…" : name;
}

int64_t unix_seconds() { return wall_clock_unix_ns() / 1'000'000'000; }

}  // namespace

Api::Api(ApiOptions options, const trainer::Tokenizer& tokenizer, ChatTemplate chat_template,
         Metrics& metrics, std::function<size_t()> connections)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      chat_template_(std::move(chat_template)),
      metrics_(metrics),
      connections_(std::move(connections)),
      created_(unix_seconds()) {}

std::unique_ptr<HttpReply> Api::admit(const HttpRequest& request,
                                      const std::string& authorization) {
  const Page page = served_page(request.path);
  const bool is_read = page != Page::kCompletions && page != Page::kChat;
  ApiError error{.status = 200, .message = ""};
  HttpReply reply;
  if (page == Page::kUnknown) {
    error = {.status = 404,
             .message = absl::StrCat(request.path == "/v1/embeddings"
                                         ? "the model generates text and has no embeddings"
                                         : absl::StrCat("no such path: ", request.path),
                                     "; there are /v1/completions, /v1/chat/completions, "
                                     "/v1/models, /metrics and /healthz"),
             .code = "not_found"};
  } else if (is_read ? request.method != "GET" && request.method != "HEAD"
                     : request.method != "POST") {
    const char* const wanted = is_read ? "GET, HEAD" : "POST";
    error = {.status = 405,
             .message = absl::StrCat(request.path, " is served for ", wanted, ", not for ",
                                     request.method)};
    reply.headers = {{"Allow", wanted}};
  } else if (is_read && request.has_body) {
    error.status = 400;
    error.message = absl::StrCat("a request for ", request.path, " has no body");
  } else if (request.path.starts_with("/v1") && !has_key(authorization)) {
    error = {.status = 401,
             .message = authorization.empty() ? "the header Authorization: Bearer KEY is missing"
                                              : "the API key is unknown",
             .code = "invalid_api_key"};
    reply.headers = {{"WWW-Authenticate", "Bearer"}};
  }
  if (error.status == 200) return nullptr;
  if (request.path.starts_with("/v1")) metrics_.count_request(error.status);
  reply.status = error.status;
  reply.body = error.body();
  return std::make_unique<HttpReply>(std::move(reply));
}

bool Api::has_key(std::string_view authorization) const {
  if (options_.api_keys.empty()) return true;
  if (!authorization.starts_with(kKeyScheme)) return false;
  return options_.api_keys.contains(daemon::token_digest(authorization.substr(kKeyScheme.size())));
}

void Api::respond(Exchange& exchange, HttpReply reply) {
  if (exchange.request().path.starts_with("/v1")) metrics_.count_request(reply.status);
  exchange.reply(std::move(reply));
}

void Api::respond(Exchange& exchange, const ApiError& error) {
  HttpReply reply{.status = error.status, .body = error.body()};
  // Outputs take seconds; a client that retries later finds another queue.
  if (error.status == 429 || error.status == 503) reply.headers = {{"Retry-After", "1"}};
  respond(exchange, std::move(reply));
}

void Api::handle(std::shared_ptr<Exchange> exchange) {
  const std::string& path = exchange->request().path;
  const Page page = served_page(path);
  if (page == Page::kHealth) {
    return respond(*exchange, HttpReply{.status = draining_ ? 503 : 200,
                                        .content_type = "text/plain; charset=utf-8",
                                        .body = draining_ ? "the server ends\n" : "ok\n"});
  }
  if (page == Page::kMetrics) {
    return respond(*exchange, HttpReply{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                        .body = metrics_.page(engine_->stats(), connections_())});
  }
  if (page == Page::kModels) {
    return show_models(*exchange, path == kModelsPath ? "" : path.substr(kModelsPath.size() + 1));
  }
  complete(exchange, page == Page::kChat);
}

std::optional<size_t> Api::find_model(Exchange& exchange, const std::string& name) {
  const std::vector<ServedModel>& models = options_.models;
  const auto found = std::ranges::find(models, name, &ServedModel::name);
  if (found != models.end()) return static_cast<size_t>(found - models.begin());
  std::vector<std::string_view> names;
  for (const ServedModel& model : models) names.push_back(model.name);
  std::string message = absl::StrCat("no such model: ", shown_name(name));
  if (models.size() == 1) {
    absl::StrAppend(&message, "; there is ", models.front().name);
  } else if (const std::string_view near = nearest_name(name, names); !near.empty()) {
    absl::StrAppend(&message, "; did you mean ", av(near), "? /v1/models lists all");
  } else {
    absl::StrAppend(&message, "; there are ", models.front().name, " and ",
                    trainer::adapter_count(models.size() - 1), "; /v1/models lists all");
  }
  respond(exchange, ApiError{.status = 404,
                             .message = std::move(message),
                             .code = "model_not_found",
                             .param = "model"});
  return std::nullopt;
}

nlohmann::ordered_json Api::model_json(size_t model) const {
  const std::vector<ServedModel>& models = options_.models;
  const std::string& name = models[model].name;
  nlohmann::ordered_json json = {{"id", name},          {"object", "model"},
                                 {"created", created_}, {"owned_by", "muster"},
                                 {"root", name},  // not the folder: clients need no paths
                                 {"parent", nullptr},   {"max_model_len", engine_->context()}};
  if (model > 0) json["parent"] = models.front().name;
  return json;
}

void Api::show_models(Exchange& exchange, const std::string& id) {
  if (!id.empty()) {
    if (const auto model = find_model(exchange, id))
      respond(exchange, HttpReply{.body = json_text(model_json(*model)) + "\n"});
    return;
  }
  auto data = nlohmann::ordered_json::array();
  for (size_t i = 0; i < options_.models.size(); ++i) data.push_back(model_json(i));
  const nlohmann::ordered_json list = {{"object", "list"}, {"data", std::move(data)}};
  respond(exchange, HttpReply{.body = json_text(list) + "\n"});
}

absl::Status Api::tokenize(CompletionRequest& request, const ServedModel& model, bool is_chat,
                           std::vector<std::vector<int32_t>>& tokens) const {
  if (is_chat) {
    auto ids = chat_prompt(chat_template_, tokenizer_, request.messages);
    if (!ids.ok()) return ids.status();
    tokens.push_back(*std::move(ids));
    return absl::OkStatus();
  }
  for (const Prompt& prompt : request.prompts) {
    if (const auto* const ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      if (ids->empty()) return absl::InvalidArgumentError("a prompt has no tokens");
      tokens.push_back(*ids);
      continue;
    }
    auto ids = trainer::prompt_tokens(model.start, tokenizer_, std::get<std::string>(prompt));
    if (!ids.ok()) return ids.status();
    tokens.push_back(*std::move(ids));
  }
  return absl::OkStatus();
}

void Api::complete(const std::shared_ptr<Exchange>& exchange, bool is_chat) {
  const std::string_view body = exchange->request().body;
  ParsedRequest parsed = is_chat ? parse_chat(body) : parse_completion(body);
  if (const auto* const error = std::get_if<ApiError>(&parsed)) return respond(*exchange, *error);
  auto& request = std::get<CompletionRequest>(parsed);
  size_t index = 0;  // a request without the field is for the base
  if (!request.model.empty()) {
    const auto found = find_model(*exchange, request.model);
    if (!found) return;
    index = *found;
  }
  const ServedModel& model = options_.models[index];
  if (draining_) {
    return respond(*exchange, ApiError{.status = 503,
                                       .message = failure_.empty() ? "the server ends" : failure_});
  }
  const char* const param = is_chat ? "messages" : "prompt";
  std::vector<std::vector<int32_t>> tokens;
  if (const auto status = tokenize(request, model, is_chat, tokens); !status.ok()) {
    return respond(*exchange, ApiError{.message = std::string(status.message()), .param = param});
  }
  if (const auto status = CompletionCall::prepare(*engine_, is_chat, tokens, request);
      !status.ok()) {
    return respond(*exchange, ApiError{.message = std::string(status.message()),
                                       .code = "context_length_exceeded",
                                       .param = param});
  }
  const size_t outputs = tokens.size() * static_cast<size_t>(request.choices);
  if (outputs > options_.outputs_max) {
    return respond(*exchange, ApiError{.message = absl::StrCat(
                                           "the request has ", outputs, " outputs; at most ",
                                           options_.outputs_max,
                                           " run or wait on this server (--batch and --waiting)"),
                                       .param = tokens.size() > 1 ? param : "n"});
  }
  if (calls_.size() + outputs > options_.outputs_max) {
    return respond(
        *exchange,
        ApiError{.status = 429,
                 .message = absl::StrCat(
                     calls_.size(), " outputs run or wait, and the request has ", outputs,
                     "; the limit is ", options_.outputs_max, ". Try again later"),
                 .code = "rate_limit_exceeded"});
  }
  const uint64_t number = next_request_++;
  const Philox::Block block = Philox{.key = options_.seed, .stream = 0}(number);
  const uint64_t drawn = uint64_t{block[0]} << 32 | block[1];
  ReplyFormat format{
      .is_chat = is_chat,
      .is_chunk = request.stream,
      .id = absl::StrCat(is_chat ? "chatcmpl-" : "cmpl-", absl::Hex(drawn, absl::kZeroPad16)),
      .model = model.name,
      .created = unix_seconds()};
  const uint64_t seed = request.has_seed ? request.sampling.seed : drawn;
  const auto call =
      std::make_shared<CompletionCall>(*this, exchange, std::move(request), std::move(tokens),
                                       std::move(format), seed, static_cast<int32_t>(index) - 1);
  call->start();
}

CallId Api::add_output(std::shared_ptr<CompletionCall> call, size_t choice) {
  const CallId id = next_call_++;
  calls_[id] = {std::move(call), choice};
  return id;
}

void Api::fail(const std::string& why) {
  drain();
  failure_ = why;
  // In the order of the calls' outputs. A call with several outputs fails once.
  const std::map<CallId, Call> outputs(calls_.begin(), calls_.end());
  calls_.clear();
  std::set<const CompletionCall*> failed;
  for (const auto& [id, output] : outputs)
    if (failed.insert(output.first.get()).second) output.first->fail(why);
}

void Api::deliver(const std::vector<CallEvent>& events) {
  for (const CallEvent& event : events) {
    const auto found = calls_.find(event.call);
    if (found == calls_.end()) continue;        // cancelled
    const auto [call, choice] = found->second;  // the call may remove itself
    call->on_event(choice, event.event);
  }
}

}  // namespace muster::serve

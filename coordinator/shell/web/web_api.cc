#include "coordinator/shell/web/web_api.h"

#include <optional>
#include <set>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/grpc/call_guard.h"
#include "coordinator/shell/web/guarded_events.h"

namespace muster::coordinator {
namespace {

constexpr std::string_view kApi = "/api/";
constexpr size_t kPathShown = 128;
// A larger body is parsed by the pool.
constexpr size_t kSmallBodyBytes = 16 << 10;
// Lists are made at most so often, whatever the number of viewers.
constexpr SharedAnswersOptions kLists = {.content_type = kJsonType,
                                         .every = std::chrono::seconds(2),
                                         .cost_share = 100,
                                         .at_once = 4,
                                         .stored_max = 64};
// The same for tables of ranks.
constexpr SharedAnswersOptions kTables = {.content_type = "application/octet-stream",
                                          .has_etags = true,
                                          .every = std::chrono::milliseconds(900),
                                          .cost_share = 60,
                                          .at_once = 1,
                                          .stored_max = 8,
                                          .refuses_debtors = true};
// No script, style or picture from elsewhere, none inside the HTML, and no page around this one.
constexpr const char* kContentPolicy =
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'";

// Returns the parts of the path where the route has {}; nullopt if it is another path.
std::optional<std::vector<std::string>> match(std::string_view route, std::string_view path) {
  const std::vector<absl::string_view> wanted = absl::StrSplit(av(route), '/');
  const std::vector<absl::string_view> given = absl::StrSplit(av(path), '/');
  if (wanted.size() != given.size()) return std::nullopt;
  std::vector<std::string> parts;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == "{}" && !given[i].empty()) {
      parts.emplace_back(given[i]);
    } else if (wanted[i] != given[i]) {
      return std::nullopt;
    }
  }
  return parts;
}

bool is_json(std::string_view content_type) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(av(content_type), absl::MaxSplits(';', 1));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts.first), kJsonType);
}

}  // namespace

WebApi::WebApi(CoreLoop& loop, LogStore& logs, EventHub& hub, WebPools& pools,
               std::shared_ptr<ShellMetrics> metrics, WebApiOptions options)
    : loop_(loop),
      logs_(logs),
      hub_(hub),
      pools_(pools),
      calls_(loop),
      nodes_(loop),
      metrics_(std::move(metrics)),
      options_(std::move(options)),
      access_(options_.access),
      lists_(pools.texts, kLists),
      tables_(pools.texts, kTables) {}

void WebApi::secure(daemon::HttpResponse& response) {
  for (const auto& [name, value] :
       {std::pair{"Content-Security-Policy", kContentPolicy},
        std::pair{"X-Content-Type-Options", "nosniff"}, std::pair{"X-Frame-Options", "DENY"},
        std::pair{"Referrer-Policy", "no-referrer"},
        std::pair{"Cross-Origin-Opener-Policy", "same-origin"},
        std::pair{"Cross-Origin-Resource-Policy", "same-origin"}})
    response.headers.emplace_back(name, value);
}

const std::vector<WebApi::Route>& WebApi::routes() {
  static const std::vector<Route> kRoutes = {
      {"GET", "/api/v1/session", nullptr, &WebApi::get_session},
      {"POST", "/api/v1/login", nullptr, &WebApi::login},
      {"POST", "/api/v1/logout", nullptr, &WebApi::logout},
      {"GET", "/api/v1/openapi.json", nullptr, &WebApi::get_api},
      {"GET", "/api/v1/fleet", "/muster.v1.Muster/ListJobs", &WebApi::get_fleet},
      {"GET", "/api/v1/fleet/history", "/muster.v1.Muster/ListJobs", &WebApi::get_fleet_history},
      {"GET", "/api/v1/events", "/muster.v1.Muster/WatchJob", &WebApi::get_events},
      {"GET", "/api/v1/jobs", "/muster.v1.Muster/ListJobs", &WebApi::list_jobs},
      {"POST", "/api/v1/jobs", "/muster.v1.Muster/SubmitJob", &WebApi::submit_job},
      {"POST", "/api/v1/jobs/check", "/muster.v1.Muster/SubmitJob", &WebApi::check_job},
      {"GET", "/api/v1/jobs/{}", "/muster.v1.Muster/GetJob", &WebApi::get_job},
      {"GET", "/api/v1/jobs/{}/history", "/muster.v1.Muster/GetJobHistory", &WebApi::get_history},
      {"GET", "/api/v1/jobs/{}/metrics", "/muster.v1.Muster/GetJob", &WebApi::get_metrics},
      {"GET", "/api/v1/jobs/{}/placement", "/muster.v1.Muster/GetJob", &WebApi::get_placement},
      {"GET", "/api/v1/jobs/{}/ranks", "/muster.v1.Muster/GetJob", &WebApi::get_ranks},
      {"GET", "/api/v1/jobs/{}/logs", "/muster.v1.Muster/FollowLogs", &WebApi::get_logs},
      {"GET", "/api/v1/jobs/{}/logs/events", "/muster.v1.Muster/FollowLogs", &WebApi::follow_logs},
      {"POST", "/api/v1/jobs/{}/cancel", "/muster.v1.Muster/CancelJob", &WebApi::cancel_job},
      {"POST", "/api/v1/jobs/{}/checkpoint", "/muster.v1.Muster/CheckpointJob",
       &WebApi::checkpoint_job},
      {"POST", "/api/v1/jobs/{}/stacks", "/muster.v1.Muster/DumpJobStacks", &WebApi::dump_stacks},
      {"GET", "/api/v1/nodes", "/muster.v1.Muster/ListWorkers", &WebApi::list_nodes},
      {"GET", "/api/v1/nodes/{}", "/muster.v1.Muster/ListWorkers", &WebApi::get_node},
      {"POST", "/api/v1/nodes/{}/exclude", "/muster.v1.Muster/ExcludeWorker",
       &WebApi::exclude_node},
      {"POST", "/api/v1/nodes/{}/admit", "/muster.v1.Muster/AdmitWorker", &WebApi::admit_node},
      {"GET", "/api/v1/incidents", "/muster.v1.Muster/ListIncidents", &WebApi::list_incidents},
      {"GET", "/api/v1/incidents/{}", "/muster.v1.Muster/GetIncident", &WebApi::get_incident}};
  return kRoutes;
}

void WebApi::handle(const daemon::HttpRequest& request, const daemon::HttpReply& reply) {
  const auto secured = [reply](daemon::HttpResponse response) {
    secure(response);
    reply(std::move(response));
  };
  if (options_.has_tls && !request.is_secure)
    // Browsers store 308 for ever, also when the coordinator no longer has TLS.
    return secured({307,
                    "text/plain; charset=utf-8",
                    "use https\n",
                    {{"Location", absl::StrCat("https://", av(request.header("host")), request.path,
                                               request.query.empty() ? "" : "?", request.query)}}});
  if (const absl::Status status = access_.check_host(request); !status.ok())
    return secured(error_response(status));
  if (!request.path.starts_with(kApi)) return secured(page_response(page_files(), request));
  std::set<std::string> allowed;
  for (const Route& route : routes()) {
    auto parts = match(route.path, request.path);
    if (!parts) continue;
    const bool is_head = request.method == "HEAD" && std::string_view(route.verb) == "GET";
    if (request.method == route.verb || is_head) {
      Call call{.request = request, .reply = secured, .caller = {}, .parts = {}, .params = {}};
      // The names are constants.
      const std::string_view counted = route.method != nullptr ? method_label(route.method)
                                       : route.handler == &WebApi::login ? "Login"
                                                                         : "";
      if (!counted.empty())
        call.reply = [secured, counted, metrics = metrics_](daemon::HttpResponse response) {
          metrics->count_rpc(counted, absl::Status(code_of_http_status(response.status), ""));
          secured(std::move(response));
        };
      call.parts = *std::move(parts);
      return call_route(route, call);
    }
    allowed.insert(route.verb);
    if (std::string_view(route.verb) == "GET") allowed.insert("HEAD");
  }
  if (allowed.empty())
    return secured(error_response(
        absl::NotFoundError(absl::StrCat("there is no ", printable(request.path, kPathShown),
                                         "; GET /api/v1/openapi.json describes what there is"))));
  daemon::HttpResponse response =
      error_response(405, absl::UnimplementedError(absl::StrCat(
                              printable(request.method, kPathShown), " is not served here; use ",
                              absl::StrJoin(allowed, " or "))));
  response.headers.emplace_back("Allow", absl::StrJoin(allowed, ", "));
  secured(std::move(response));
}

void WebApi::call_route(const Route& route, Call& call) {
  call.caller = access_.caller_of(call.request);
  if (call.caller.token && !call.caller.role) note_refused_token(call.request);
  record(route, call);
  if (route.method != nullptr) {
    call.method = method_label(route.method);
    call.needed = role_needed(route.method).value_or(Role::kViewer);
    const absl::Status status = access_.check_role(call.caller, call.needed, call.method);
    if (!status.ok()) return call.fail(status);
  }
  const bool is_post = std::string_view(route.verb) == "POST";
  // Large bodies wait for a thread. Calls that need no role have none, so that strangers cannot
  // fill its queue.
  const bool is_large = call.request.body.size() > kSmallBodyBytes;
  if (is_large && (!is_post || route.method == nullptr))
    return call.reply(error_response(
        413, absl::InvalidArgumentError(absl::StrCat("the body has ", call.request.body.size(),
                                                     " bytes; at most ", kSmallBodyBytes,
                                                     " are accepted here"))));
  if (is_post) {
    if (const absl::Status status = access_.check_post(call.request, call.caller); !status.ok())
      return call.fail(status);
    if (!is_json(call.request.header("content-type")))
      return call.reply(error_response(
          415, absl::InvalidArgumentError("the body must have the type application/json")));
  }
  if (!is_large) return read_params(route, call);
  const auto kept = std::make_shared<const daemon::HttpRequest>(call.request);
  const bool is_posted = pools_.texts.post(
      [this, &route, kept, reply = call.reply, caller = call.caller, parts = call.parts,
       method = call.method, needed = call.needed, target = call.target] {
        Call later{.request = *kept,
                   .reply = reply,
                   .caller = caller,
                   .parts = parts,
                   .params = {},
                   .method = method,
                   .needed = needed,
                   .target = target};
        read_params(route, later);
      });
  if (!is_posted) call.fail(absl::ResourceExhaustedError("too many requests wait; try again"));
}

void WebApi::read_params(const Route& route, Call& call) {
  for (std::string& part : call.parts) {
    auto decoded = percent_decoded(part, false);
    if (!decoded.ok()) return call.fail(decoded.status());
    part = *std::move(decoded);
  }
  auto params = std::string_view(route.verb) == "POST" ? WebParams::of_body(call.request.body)
                                                       : WebParams::of_query(call.request.query);
  if (!params.ok()) return call.fail(params.status());
  call.params = *std::move(params);
  begin_call(route, call);
}

// Refuses reads while the loop is late, as the gRPC service does.
void WebApi::begin_call(const Route& route, Call& call) {
  const bool is_read = route.method != nullptr && std::string_view(route.verb) == "GET";
  if (is_read) {
    const absl::Status status = loop_.admit_read(monotonic_now());
    if (absl::IsResourceExhausted(status)) metrics_->count_shed(method_label(route.method));
    if (!status.ok()) return call.reply(error_response(status, loop_.retry_after()));
  }
  (this->*route.handler)(call);
}

void WebApi::note_refused_token(const daemon::HttpRequest& request) {
  if (const auto line = refusals_.note(request.peer, monotonic_now())) spdlog::warn("{}", *line);
}

Audit WebApi::audit_of(const daemon::HttpRequest& request, std::string_view method,
                       const WebCaller& caller, bool is_change) const {
  AuditEntry entry{.method = std::string(method),
                   .target = request.path,
                   .caller = caller.identity.name,
                   .peer = request.peer};
  if (caller.role && access_.requires_login()) entry.role = std::string(name_of(*caller.role));
  if (caller.token) entry.token = audit_token(*caller.token);
  return {options_.audit_log, std::move(entry), is_change};
}

void WebApi::record(const Route& route, Call& call) const {
  if (route.method == nullptr) return;
  const bool is_change = call.request.method == "POST" && route.handler != &WebApi::check_job;
  call.target = std::make_shared<std::string>();
  call.reply = [reply = call.reply, target = call.target,
                audit = audit_of(call.request, method_label(route.method), call.caller, is_change)](
                   daemon::HttpResponse response) {
    audit.finish(absl::Status(code_of_http_status(response.status), error_message(response)),
                 *target);
    reply(std::move(response));
  };
}

void WebApi::share(const Call& call, SharedAnswers::Make make) {
  lists_.get(absl::StrCat(call.request.path, "?", call.request.query), call.request, call.reply,
             std::move(make));
}

void WebApi::share_of_attempt(const Call& call, JobId job, SharedAnswers::Make make) {
  const auto scope = logs_.scope(job);
  const uint64_t attempt = scope ? scope->newest_attempt.value() : 0;
  lists_.get(absl::StrCat(call.request.path, "?", call.request.query, "#", attempt), call.request,
             call.reply, std::move(make));
}

void WebApi::reply_events(const Call& call, OpenEvents open) {
  auto ticket = hub_.take_ticket();
  if (ticket == nullptr)
    return call.fail(absl::ResourceExhaustedError(absl::StrCat(
        kViewersMax,
        " viewers are connected, which is the limit: close some, or try again later")));
  call.reply({.content_type = "text/event-stream",
              .open = [this, ticket = std::move(ticket), open = std::move(open),
                       caller = call.caller, needed = call.needed,
                       method = call.method](std::shared_ptr<daemon::HttpSink> sink) {
                return std::make_shared<GuardedEvents>(
                    sink, open(sink, ticket), [this, caller, needed, method] {
                      const WebCaller now = access_.renewed(caller);
                      const absl::Status status = access_.check_role(now, needed, method);
                      if (!status.ok() || now.identity == caller.identity) return status;
                      return absl::UnauthenticatedError("the rights of the token have changed");
                    });
              }});
}

uint64_t WebApi::number_of(Call& call, const char* name) {
  const auto number = parse_number(name, call.parts.front(), 1, kExactMax);
  if (number.ok()) return static_cast<uint64_t>(*number);
  call.fail(number.status());
  return 0;
}

void WebApi::refuse_unless_ok(const Call& call, const absl::Status& status) const {
  if (!status.ok()) call.reply(error_response(status, loop_.retry_after()));
}

}  // namespace muster::coordinator

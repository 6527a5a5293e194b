// The page's API below /api/v1, described by proto/openapi.json, and the page's files.
//
// A handler reads the parameters, makes the same calls as the gRPC service (calls/muster_calls.h),
// and writes the messages as the JSON of the command line's --json (daemon/json). Each route names
// the gRPC method whose role it requires (grpc/call_guard.h).
//
// The HTTP server's thread only begins calls: pools of threads read files, and write and compress
// texts, so that a slow disk or a large answer delays no probe. Viewers share the answers that they
// request repeatedly (shared_answers.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/calls/muster_calls.h"
#include "coordinator/shell/calls/node_listing.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "coordinator/shell/web/event_hub.h"
#include "coordinator/shell/web/page_files.h"
#include "coordinator/shell/web/refusal_log.h"
#include "coordinator/shell/web/shared_answers.h"
#include "coordinator/shell/web/web_access.h"
#include "coordinator/shell/web/web_params.h"
#include "coordinator/shell/web/web_reply.h"
#include "daemon/http_message.h"
#include "daemon/work_pool.h"

namespace muster::coordinator {

// The maximum size of a request's body: a job with the largest spec (InputLimits::spec_bytes_max),
// whose config may have escaped quotes.
constexpr size_t kWebBodyBytesMax = size_t{6} << 20;

// The threads of the API.
struct WebPools {
  daemon::WorkPool texts{1, 512};  // writes and compresses JSON
  daemon::WorkPool files{2, 512};  // reads files, which may block

  void stop() {
    texts.stop();
    files.stop();
  }
};

struct WebApiOptions {
  WebAccessOptions access = {};
  bool has_tls = false;  // requests without TLS are redirected
  Epoch epoch;
  std::shared_ptr<AuditLog> audit_log = nullptr;
};

class WebApi {
 public:
  // Requires that `loop`, `logs` and `hub` outlive the API, that the server of its requests ends
  // before it, and that `loop` and `pools` are stopped before it is destroyed.
  WebApi(CoreLoop& loop, LogStore& logs, EventHub& hub, WebPools& pools,
         std::shared_ptr<ShellMetrics> metrics, WebApiOptions options);

  // Answers a request. Called on the HTTP server's thread.
  void handle(const daemon::HttpRequest& request, const daemon::HttpReply& reply);

  // Adds the headers that every response of the page has.
  static void secure(daemon::HttpResponse& response);

 private:
  // One request of a route.
  struct Call {
    const daemon::HttpRequest& request;
    daemon::HttpReply reply;
    WebCaller caller;
    std::vector<std::string> parts;  // parts of the path, where the route has {}
    WebParams params;
    // The name and the role of the route's method.
    std::string_view method = {};
    Role needed = Role::kViewer;
    // Replaces the path in the call's line of the audit log, unless it is empty.
    std::shared_ptr<std::string> target = nullptr;

    void fail(const absl::Status& status) const { reply(error_response(status)); }
  };
  using Handler = void (WebApi::*)(Call& call);
  struct Route {
    const char* verb;
    const char* path;    // "/api/v1/jobs/{}"
    const char* method;  // "/muster.v1.Muster/GetJob"; null: everyone may call it
    Handler handler;
  };

  static const std::vector<Route>& routes();
  void call_route(const Route& route, Call& call);
  void read_params(const Route& route, Call& call);
  void begin_call(const Route& route, Call& call);
  void note_refused_token(const daemon::HttpRequest& request);
  Audit audit_of(const daemon::HttpRequest& request, std::string_view method,
                 const WebCaller& caller, bool is_change) const;
  // Lets the call's reply write its line in the audit log.
  void record(const Route& route, Call& call) const;

  // web_session.cc
  void get_session(Call& call);
  void login(Call& call);
  void logout(Call& call);
  void get_api(Call& call);
  nlohmann::json session_of(const WebCaller& caller) const;
  // web_fleet.cc
  void get_fleet(Call& call);
  void get_fleet_history(Call& call);
  void get_events(Call& call);
  void list_nodes(Call& call);
  void get_node(Call& call);
  void exclude_node(Call& call);
  void admit_node(Call& call);
  MusterCalls::Done<v1::WorkerInfo> changed_node(const Call& call);
  void list_incidents(Call& call);
  void get_incident(Call& call);
  // web_jobs.cc
  void list_jobs(Call& call);
  void submit_job(Call& call);
  void check_job(Call& call);
  void get_job(Call& call);
  void get_history(Call& call);
  void get_metrics(Call& call);
  void cancel_job(Call& call);
  void checkpoint_job(Call& call);
  void dump_stacks(Call& call);
  // web_ranks.cc
  void get_placement(Call& call);
  void get_ranks(Call& call);
  void get_logs(Call& call);
  void follow_logs(Call& call);

  // Returns the number of the path's part; 0 after it has refused the request.
  uint64_t number_of(Call& call, const char* name);
  // Replies with the error of a call that was not accepted.
  void refuse_unless_ok(const Call& call, const absl::Status& status) const;
  // Replies with a stream of events, for a viewer. Its source is the result of `open`, with which
  // the ticket is released.
  using OpenEvents = std::function<std::shared_ptr<daemon::HttpSource>(
      std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<void> ticket)>;
  void reply_events(const Call& call, OpenEvents open);
  // Replies with the response that `make` returns on a thread of the pool.
  template <class F>
  static void reply_from(daemon::WorkPool& pool, const daemon::HttpReply& reply, F make) {
    if (!pool.post([reply, make = std::move(make)] { reply(make()); }))
      reply(error_response(absl::ResourceExhaustedError(
          "too many requests wait for the coordinator's files and texts; try again")));
  }
  // Returns the callback of a call: replies with the JSON that `to_json` makes of the answer. A
  // full pool refuses reads alone: other calls have been carried out, and each connection has at
  // most one.
  template <class T, class ToJson>
  MusterCalls::Done<T> json_of(const Call& call, ToJson to_json) {
    return [&texts = pools_.texts, reply = call.reply, gzip = takes_gzip(call.request), to_json,
            is_read = call.request.method != "POST"](const absl::Status& status, T answer) {
      if (!status.ok()) return reply(error_response(status));
      const auto make = [message = std::make_shared<T>(std::move(answer)), gzip, to_json] {
        const absl::StatusOr<nlohmann::json> value = to_json(*message);
        return value.ok() ? json_response(*value, gzip) : error_response(value.status());
      };
      if (is_read) return reply_from(texts, reply, make);
      texts.post_always([reply, make] { reply(make()); });
    };
  }
  // The same for an answer that viewers share.
  template <class T, class ToJson>
  static MusterCalls::Done<T> shared_json_of(SharedAnswers::Done done, ToJson to_json) {
    return [done = std::move(done), to_json](const absl::Status& status, T answer) {
      if (!status.ok()) return done(status);
      done(SharedAnswers::Data{.text = [message = std::make_shared<T>(std::move(answer)),
                                        to_json]() -> absl::StatusOr<std::string> {
        const absl::StatusOr<nlohmann::json> value = to_json(*message);
        if (!value.ok()) return value.status();
        return json_text(*value) + "\n";
      }});
    };
  }
  // Answers with the list that viewers share.
  void share(const Call& call, SharedAnswers::Make make);
  // The same for a list about the job's newest attempt: that of an earlier attempt is not shown.
  void share_of_attempt(const Call& call, JobId job, SharedAnswers::Make make);

  CoreLoop& loop_;
  LogStore& logs_;
  EventHub& hub_;
  WebPools& pools_;
  MusterCalls calls_;
  NodeListing nodes_;
  const std::shared_ptr<ShellMetrics> metrics_;
  const WebApiOptions options_;
  WebAccess access_;
  RefusalLog refusals_;
  SharedAnswers lists_;
  SharedAnswers tables_;
};

}  // namespace muster::coordinator

// The page's API below /api/v1, described by proto/openapi.json, and the page's files.
//
// A handler reads the parameters, makes the same calls as the gRPC service (calls/muster_calls.h),
// and writes the messages as the JSON of the command line's --json (daemon/json). Each route names
// the gRPC method whose role it requires (grpc/call_guard.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/shell/calls/muster_calls.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "coordinator/shell/web/event_hub.h"
#include "coordinator/shell/web/page_files.h"
#include "coordinator/shell/web/web_access.h"
#include "coordinator/shell/web/web_params.h"
#include "coordinator/shell/web/web_reply.h"
#include "daemon/http_message.h"

namespace muster::coordinator {

// The maximum size of a request's body: a job with the largest spec (InputLimits::spec_bytes_max),
// whose config may have escaped quotes.
constexpr size_t kWebBodyBytesMax = size_t{6} << 20;

struct WebApiOptions {
  WebAccessOptions access = {};
  bool has_tls = false;  // requests without TLS are redirected
  Epoch epoch;
};

class WebApi {
 public:
  // Requires that `loop`, `logs` and `hub` outlive the API and its responses.
  WebApi(CoreLoop& loop, LogStore& logs, EventHub& hub, std::shared_ptr<ShellMetrics> metrics,
         WebApiOptions options);

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

    void fail(const absl::Status& status) const { reply(error_response(status)); }
  };
  using Handler = void (WebApi::*)(Call& call);
  struct Route {
    const char* verb;
    const char* path;    // "/api/v1/jobs/{}"
    const char* method;  // "/muster.v1.Muster/GetJob"; null: everyone may call it
    Handler handler;
  };
  // The newest rank table of a job, which several viewers receive.
  struct Table {
    Instant made{};
    Duration cost{};  // the time to make it
    std::string etag;
    std::shared_ptr<const std::string> plain, gzip;
    // Set while the next one is made, with the viewers that wait for it.
    std::optional<Instant> begun;
    std::vector<std::pair<daemon::HttpRequest, daemon::HttpReply>> waiting;
  };

  static const std::vector<Route>& routes();
  void call_route(const Route& route, Call& call);
  void begin_call(const Route& route, Call& call);

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
  static daemon::HttpResponse table_response(const Table& table,
                                             const daemon::HttpRequest& request);
  void take_table(JobId id, std::string plain, int64_t unix_ns, Duration cost);
  void get_logs(Call& call);
  void follow_logs(Call& call);

  // Returns the number of the path's part; 0 after it has refused the request.
  uint64_t number_of(Call& call, const char* name);
  // Replies with the error of a call that was not accepted.
  void refuse_unless_ok(const Call& call, const absl::Status& status) const;
  // Returns the callback of a call: replies with the JSON that `to_json` makes of the answer on the
  // server's thread.
  template <class T, class ToJson>
  static MusterCalls::Done<T> json_of(const Call& call, ToJson to_json) {
    return [reply = call.reply, to_json](const absl::Status& status, T answer) {
      if (!status.ok()) return reply(error_response(status));
      reply({.complete = [message = std::make_shared<T>(std::move(answer)),
                          to_json](daemon::HttpResponse& response) {
        const absl::StatusOr<nlohmann::json> value = to_json(*message);
        response = value.ok() ? json_response(*value) : error_response(value.status());
      }});
    };
  }

  CoreLoop& loop_;
  LogStore& logs_;
  EventHub& hub_;
  MusterCalls calls_;
  const std::shared_ptr<ShellMetrics> metrics_;
  const WebApiOptions options_;
  WebAccess access_;
  std::map<JobId, Table> tables_;  // used on the server's thread
};

}  // namespace muster::coordinator

// The fleet, its events, nodes and incidents.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "coordinator/shell/web/web_api.h"
#include "daemon/json/incident_json.h"
#include "daemon/json/job_json.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

constexpr int64_t kNodesListed = 1'000;
constexpr int64_t kNodesListedMax = 20'000;
// The maximum size of the listed nodes as messages. A single one is listed whatever its size.
constexpr size_t kNodesBytesMax = 3 << 20;
constexpr int64_t kIncidentsListedMax = 1'000;
constexpr size_t kReasonBytesMax = 1'024;

// Returns a part of the list of nodes.
json nodes_after(const NodeListing::Nodes& nodes, const std::string& after, int64_t limit) {
  json out = {{"nodes", json::array()}, {"more", false}};
  auto at = std::upper_bound(
      nodes.begin(), nodes.end(), after,
      [](const std::string& name, const v1::WorkerInfo& node) { return name < node.name(); });
  size_t bytes = 0;
  for (; at != nodes.end(); ++at) {
    bytes += at->ByteSizeLong();
    if (std::ssize(out["nodes"]) == limit || bytes > kNodesBytesMax) {
      out["more"] = true;
      break;
    }
    out["nodes"].push_back(daemon::worker_to_json(*at));
  }
  return out;
}

}  // namespace

void WebApi::get_fleet(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  hub_.get_fleet([reply = call.reply](const absl::StatusOr<json>& fleet) {
    reply(fleet.ok() ? json_response(*fleet) : error_response(fleet.status()));
  });
}

void WebApi::get_fleet_history(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  share(call, [&hub = hub_](const SharedAnswers::Done& done) {
    done(SharedAnswers::Data{.text = [&hub]() -> absl::StatusOr<std::string> {
      return json_text(hub.fleet_history()) + "\n";
    }});
    return absl::OkStatus();
  });
}

void WebApi::get_events(Call& call) {
  const JobId job(static_cast<uint64_t>(call.params.number("job", 0, kExactMax, 0)));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  reply_events(call, [&hub = hub_, job, last = std::string(call.request.header("last-event-id"))](
                         std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<void> ticket) {
    return hub.open(std::move(sink), std::move(ticket), last, job);
  });
}

void WebApi::list_nodes(Call& call) {
  const std::string after = call.params.text("after", kNameBytesMax);
  const int64_t limit = call.params.number("limit", 1, kNodesListedMax, kNodesListed);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  share(call, [this, after, limit](SharedAnswers::Done done) {
    nodes_.get([after, limit, done = std::move(done)](
                   const absl::StatusOr<std::shared_ptr<const NodeListing::Nodes>>& nodes,
                   Duration cost) {
      if (!nodes.ok()) return done(nodes.status());
      done(SharedAnswers::Data{
          .cost = cost, .text = [nodes = *nodes, after, limit]() -> absl::StatusOr<std::string> {
            return json_text(nodes_after(*nodes, after, limit)) + "\n";
          }});
    });
    return absl::OkStatus();
  });
}

void WebApi::get_node(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  share(call, [this, name = call.parts.front()](SharedAnswers::Done done) {
    return calls_.get_worker(
        name, shared_json_of<v1::WorkerInfo>(std::move(done), daemon::worker_to_json));
  });
}

void WebApi::exclude_node(Call& call) {
  v1::ExcludeWorkerRequest request;
  request.set_worker(call.parts.front());
  request.set_reason(call.params.text("reason", kReasonBytesMax));
  request.set_seconds(call.params.number("seconds", 0, INT64_MAX, 0));
  request.set_evacuate(call.params.flag("evacuate", false));
  request.set_drain_unix_ns(call.params.number("drain_unix_ns", 0, INT64_MAX, 0));
  request.set_late(true);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.exclude_worker(request, changed_node(call)));
}

void WebApi::admit_node(Call& call) {
  v1::AdmitWorkerRequest request;
  request.set_worker(call.parts.front());
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.admit_worker(request, changed_node(call)));
}

// The next lists show the change.
MusterCalls::Done<v1::WorkerInfo> WebApi::changed_node(const Call& call) {
  return [this, done = json_of<v1::WorkerInfo>(call, daemon::worker_to_json)](
             const absl::Status& status, v1::WorkerInfo node) {
    nodes_.expire();
    lists_.expire();
    done(status, std::move(node));
  };
}

void WebApi::list_incidents(Call& call) {
  v1::ListIncidentsRequest request;
  request.set_job_id(static_cast<uint64_t>(call.params.number("job", 0, kExactMax, 0)));
  request.set_limit(
      static_cast<uint32_t>(call.params.number("limit", 1, kIncidentsListedMax, 100)));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const auto to_json = [](const v1::ListIncidentsResponse& incidents) -> absl::StatusOr<json> {
    json out = {{"incidents", json::array()}};
    for (const v1::Incident& incident : incidents.incidents()) {
      auto one = daemon::incident_to_json(incident);
      if (!one.ok()) return one.status();
      out["incidents"].push_back(*std::move(one));
    }
    return out;
  };
  share(call, [this, request, to_json](SharedAnswers::Done done) {
    return calls_.list_incidents(
        request, shared_json_of<v1::ListIncidentsResponse>(std::move(done), to_json));
  });
}

void WebApi::get_incident(Call& call) {
  v1::GetIncidentRequest request;
  request.set_incident_id(number_of(call, "incident"));
  if (request.incident_id() == 0) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call,
                   calls_.get_incident(call.caller.identity, request,
                                       json_of<v1::Incident>(call, daemon::incident_to_json)));
}

}  // namespace muster::coordinator

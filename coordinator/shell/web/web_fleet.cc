// The fleet, its events, nodes and incidents.
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
constexpr int64_t kIncidentsListedMax = 1'000;
constexpr size_t kReasonBytesMax = 1'024;

}  // namespace

void WebApi::get_fleet(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  hub_.get_fleet([reply = call.reply](const absl::StatusOr<json>& fleet) {
    reply(fleet.ok() ? json_response(*fleet) : error_response(fleet.status()));
  });
}

void WebApi::get_fleet_history(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  call.reply(json_response(hub_.fleet_history()));
}

void WebApi::get_events(Call& call) {
  const JobId job(static_cast<uint64_t>(call.params.number("job", 0, kExactMax, 0)));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  auto ticket = hub_.take_ticket();
  if (ticket == nullptr)
    return call.fail(absl::ResourceExhaustedError(absl::StrCat(
        kViewersMax,
        " viewers are connected, which is the limit: close some, or try again later")));
  call.reply(
      {.content_type = "text/event-stream",
       .open = [&hub = hub_, ticket, job, last = std::string(call.request.header("last-event-id"))](
                   auto sink) { return hub.open(std::move(sink), ticket, last, job); }});
}

void WebApi::list_nodes(Call& call) {
  v1::ListWorkersRequest request;
  request.set_after(call.params.text("after", kNameBytesMax));
  const int64_t limit = call.params.number("limit", 1, kNodesListedMax, kNodesListed);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const auto to_json = [](const v1::ListWorkersResponse& workers) -> absl::StatusOr<json> {
    json out = {{"nodes", json::array()}, {"more", workers.more()}};
    for (const v1::WorkerInfo& worker : workers.workers())
      out["nodes"].push_back(daemon::worker_to_json(worker));
    return out;
  };
  refuse_unless_ok(call,
                   calls_.list_workers(request, json_of<v1::ListWorkersResponse>(call, to_json),
                                       static_cast<size_t>(limit)));
}

void WebApi::get_node(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.get_worker(call.parts.front(),
                                           json_of<v1::WorkerInfo>(call, daemon::worker_to_json)));
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
  refuse_unless_ok(
      call, calls_.exclude_worker(request, json_of<v1::WorkerInfo>(call, daemon::worker_to_json)));
}

void WebApi::admit_node(Call& call) {
  v1::AdmitWorkerRequest request;
  request.set_worker(call.parts.front());
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(
      call, calls_.admit_worker(request, json_of<v1::WorkerInfo>(call, daemon::worker_to_json)));
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
  refuse_unless_ok(
      call, calls_.list_incidents(request, json_of<v1::ListIncidentsResponse>(call, to_json)));
}

void WebApi::get_incident(Call& call) {
  v1::GetIncidentRequest request;
  request.set_incident_id(number_of(call, "incident"));
  if (request.incident_id() == 0) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(
      call, calls_.get_incident(request, json_of<v1::Incident>(call, daemon::incident_to_json)));
}

}  // namespace muster::coordinator

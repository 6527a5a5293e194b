// Jobs: lists, single jobs, their curves, and the actions on them.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>

#include "common/text/escape.h"
#include "coordinator/core/queue/validation.h"
#include "coordinator/shell/web/fleet_json.h"
#include "coordinator/shell/web/web_api.h"
#include "daemon/evidence_messages.h"
#include "daemon/job_spec_messages.h"
#include "daemon/json/job_json.h"
#include "daemon/json/stack_json.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

constexpr int64_t kJobsListed = 100;
constexpr int64_t kAttemptsListedMax = 1'000;
constexpr size_t kSearchBytesMax = 128;
constexpr int64_t kRanksShownMax = 4'096;
constexpr size_t kEvidenceRanksMax = 1 << 20;

// Reads the job of a submission: the fields of muster.v1.JobSpec, with the config as an object or
// as a text.
absl::StatusOr<v1::JobSpec> spec_of(json object) {
  if (!object.is_object()) return absl::InvalidArgumentError("spec is missing: an object");
  if (const auto config = object.find("train_config"); config != object.end()) {
    if (object.contains("train_config_json") || !config->is_object())
      return absl::InvalidArgumentError(
          "spec.train_config must be an object, and train_config_json is then absent");
    object["train_config_json"] = json_text(*config);
    object.erase("train_config");
  }
  // protobuf would take null for the default, and the items of an array in an array.
  const auto is_refused = [](const json& value) { return value.is_null() || value.is_array(); };
  for (const auto& [name, value] : object.items())
    if (value.is_null() || (value.is_array() && std::ranges::any_of(value, is_refused)))
      return absl::InvalidArgumentError(
          absl::StrCat("spec.", printable(name, kSearchBytesMax),
                       " is null, or has null or an array as an item; omit what has no value"));
  v1::JobSpec spec;
  const auto status = google::protobuf::util::JsonStringToMessage(json_text(object), &spec);
  if (status.ok()) return spec;
  return absl::InvalidArgumentError(
      absl::StrCat("spec: ", std::string(status.message().data(), status.message().size())));
}

std::optional<JobState> state_named(std::string_view name) {
  const auto found = std::find(kJobStateNames.begin(), kJobStateNames.end(), name);
  if (found == kJobStateNames.end()) return std::nullopt;
  return static_cast<JobState>(found - kJobStateNames.begin());
}

absl::StatusOr<json> dump_of(const v1::DumpJobStacksResponse& dump) {
  const auto stacks = daemon::stack_tree_from_proto(dump.stacks());
  if (!stacks.ok()) return stacks.status();
  return daemon::dump_to_json(dump, *stacks,
                              daemon::evidence_from_proto(dump.ranks(), kEvidenceRanksMax));
}

}  // namespace

void WebApi::list_jobs(Call& call) {
  v1::ListJobsRequest request;
  request.set_active_only(call.params.flag("active", false));
  request.set_before_job_id(static_cast<uint64_t>(call.params.number("before", 0, kExactMax, 0)));
  JobFilter filter;
  filter.limit = static_cast<int>(call.params.number("limit", 1, kJobsListedMax, kJobsListed));
  filter.search = call.params.text("search", kSearchBytesMax);
  const bool has_state = call.params.has("state");
  filter.state = state_named(call.params.text("state", kSearchBytesMax));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  if (has_state && !filter.state)
    return call.fail(absl::InvalidArgumentError(
        "state is unknown: must be QUEUED, STARTING, RUNNING, SUSPECT, DUMPING, RESTARTING, "
        "SUCCEEDED, FAILED or CANCELLED"));
  const auto to_json = [](const v1::ListJobsResponse& jobs) -> absl::StatusOr<json> {
    json out = {{"jobs", json::array()}, {"more", jobs.more()}};
    for (const v1::Job& job : jobs.jobs()) out["jobs"].push_back(daemon::job_to_json(job));
    return out;
  };
  refuse_unless_ok(call, calls_.list_jobs(request, json_of<v1::ListJobsResponse>(call, to_json),
                                          std::move(filter)));
}

void WebApi::submit_job(Call& call) {
  v1::SubmitJobRequest request;
  auto spec = spec_of(call.params.object("spec"));
  request.set_request_id(call.params.text("request_id", InputLimits().request_id_bytes_max));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  if (request.request_id().empty())
    return call.fail(absl::InvalidArgumentError(
        "request_id is missing: a text by which a repeated request gets the same job"));
  if (!spec.ok()) return call.fail(spec.status());
  *request.mutable_spec() = *std::move(spec);
  const auto done = [target = call.target, reply = json_of<v1::Job>(call, daemon::job_to_json)](
                        const absl::Status& status, v1::Job job) {
    if (status.ok()) *target = absl::StrCat("job ", job.id());
    reply(status, std::move(job));
  };
  refuse_unless_ok(call, calls_.submit_job(call.caller.identity, request, done));
}

void WebApi::check_job(Call& call) {
  const auto spec = spec_of(call.params.object("spec"));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  if (!spec.ok()) return call.fail(spec.status());
  const absl::Status status = check_spec(daemon::job_spec_from_proto(*spec), InputLimits());
  if (!status.ok()) return call.fail(status);
  call.reply(json_response({{"ok", true}}));
}

void WebApi::get_job(Call& call) {
  v1::GetJobRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_first_rank(static_cast<int32_t>(call.params.number("first_rank", 0, INT32_MAX, 0)));
  const int64_t ranks = call.params.number("ranks", 0, kRanksShownMax, 1);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.get_job(request, json_of<v1::Job>(call, daemon::job_to_json),
                                        static_cast<size_t>(ranks)));
}

void WebApi::get_history(Call& call) {
  v1::GetJobHistoryRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_limit(static_cast<uint32_t>(call.params.number("limit", 1, kAttemptsListedMax, 100)));
  request.set_before_attempt(static_cast<uint32_t>(call.params.number("before", 0, UINT32_MAX, 0)));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  share_of_attempt(call, JobId(request.job_id()), [this, request](SharedAnswers::Done done) {
    return calls_.job_history(request, shared_json_of<v1::GetJobHistoryResponse>(
                                           std::move(done), daemon::history_to_json));
  });
}

void WebApi::get_metrics(Call& call) {
  const uint64_t number = number_of(call, "job");
  if (number == 0) return;
  const int64_t since = call.params.number("since_unix_ns", 0, INT64_MAX, 0);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const JobId id(number);
  refuse_unless_ok(call, loop_.query([this, reply = call.reply, gzip = takes_gzip(call.request), id,
                                      since](const Core* core, Instant) {
    if (core == nullptr)
      return reply(error_response(absl::UnavailableError("the coordinator is stopping")));
    if (!core->jobs().contains(id)) return reply(error_response(MusterCalls::no_job(id)));
    reply_from(pools_.texts, reply, [&hub = hub_, id, since, gzip] {
      return json_response(metrics_to_json(id.value(), hub.metrics(id, since)), gzip);
    });
  }));
}

void WebApi::cancel_job(Call& call) {
  v1::CancelJobRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_force(call.params.flag("force", false));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.cancel_job(call.caller.identity, request,
                                           json_of<v1::Job>(call, daemon::job_to_json)));
}

void WebApi::checkpoint_job(Call& call) {
  v1::CheckpointJobRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const auto to_json = [](const v1::CheckpointJobResponse& response) -> absl::StatusOr<json> {
    return json{{"job", daemon::job_to_json(response.job())},
                {"after_step", response.after_step()}};
  };
  refuse_unless_ok(call, calls_.checkpoint_job(call.caller.identity, request,
                                               json_of<v1::CheckpointJobResponse>(call, to_json)));
}

void WebApi::dump_stacks(Call& call) {
  v1::DumpJobStacksRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_rank(static_cast<int32_t>(call.params.number("rank", -1, INT32_MAX, -1)));
  request.set_program_dumps(call.params.flag("program_dumps", false));
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, calls_.dump_stacks(call.caller.identity, request,
                                            json_of<v1::DumpJobStacksResponse>(call, dump_of)));
}

}  // namespace muster::coordinator

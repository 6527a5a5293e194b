#include "coordinator/shell/grpc/muster_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/grpc/job_stream.h"
#include "coordinator/shell/grpc/log_stream.h"
#include "coordinator/shell/grpc/unary_call.h"
#include "coordinator/shell/messages/attempt_messages.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "coordinator/shell/messages/node_messages.h"
#include "daemon/job_spec_messages.h"

namespace muster::coordinator {
namespace {

constexpr int kJobsListedMax = 1'000;
constexpr size_t kIncidentsListed = 100;  // default number of incidents in a list
constexpr size_t kAttemptsListed = 100;   // default number of attempts in a list
// The bound of a list's size, well below the limit of clients (gRPC's default is 4 MiB).
constexpr size_t kListBytesMax = 3 << 20;

absl::Status stopped() { return absl::UnavailableError("the coordinator is stopping"); }

// The time after which the loop has taken the events of a full queue.
constexpr Duration kFullQueueRetry = std::chrono::seconds(2);

// Answers in place of the loop if the request was rejected.
void refuse_unless_ok(const UnaryCall& call, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return call.refuse(status, kFullQueueRetry);
  if (!status.ok()) call.finish(status);
}

struct Use {
  explicit Use(const Core& core) : all(core.use_by_worker()), held(core.held_by_worker()) {}

  NodeUses all, held;
};

NodeUse use_of(const NodeUses& uses, const WorkerName& name) {
  const auto found = uses.find(name);
  return found == uses.end() ? NodeUse{} : found->second;
}

// Describes a worker that is registered, known only by its node record, or unknown.
v1::WorkerInfo info_of(const Core& core, const Use& use, const WorkerName& name, Instant now) {
  const auto node = core.nodes().find(name);
  const NodeRecord* known = node == core.nodes().end() ? nullptr : &node->second;
  const auto worker = core.workers().find(name);
  if (worker == core.workers().end()) {
    NodeRecord nothing;
    nothing.worker = name;
    return absent_worker_to_proto(known == nullptr ? nothing : *known);
  }
  return worker_to_proto(worker->second, known,
                         {.slots = use_of(use.all, name).slots,
                          .slots_held = use_of(use.held, name).slots,
                          .gpus = use_of(use.all, name).gpus},
                         now);
}

}  // namespace

grpc::ServerUnaryReactor* MusterService::SubmitJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitJobRequest* request,
                                                   v1::SubmitJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "SubmitJob");
  JobSubmitted event;
  event.request_id = request->request_id();
  event.spec = daemon::job_spec_from_proto(request->spec());
  refuse_unless_ok(call,
                   loop_.submit(std::move(event), [=](const absl::Status& status, const Core& core,
                                                      const Job* job, Instant now) {
                     if (job != nullptr) *response->mutable_job() = job_to_proto(core, *job, now);
                     call.finish(status);
                   }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CancelJob(grpc::CallbackServerContext* context,
                                                   const v1::CancelJobRequest* request,
                                                   v1::CancelJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "CancelJob");
  JobCancelRequested event;
  event.job = JobId(request->job_id());
  event.force = request->force();
  refuse_unless_ok(call, loop_.cancel(event, [=](const absl::Status& status, const Core& core,
                                                 const Job* job, Instant now) {
    if (job != nullptr) *response->mutable_job() = job_to_proto(core, *job, now);
    call.finish(status);
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CheckpointJob(grpc::CallbackServerContext* context,
                                                       const v1::CheckpointJobRequest* request,
                                                       v1::CheckpointJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "CheckpointJob");
  JobCheckpointRequested event;
  event.job = JobId(request->job_id());
  const auto reply = [=](const absl::Status& status, const Core& core, const Job* job,
                         Instant now) {
    if (job != nullptr && status.ok()) {
      *response->mutable_job() = job_to_proto(core, *job, now);
      response->set_after_step(std::max<int64_t>(job->ranks.front().step, 0));
    }
    call.finish(status);
  };
  refuse_unless_ok(call, loop_.checkpoint(event, reply));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJob(grpc::CallbackServerContext* context,
                                                const v1::GetJobRequest* request,
                                                v1::Job* response) {
  const UnaryCall call(*context, *metrics_, "GetJob");
  if (is_shed(call)) return call.reactor();
  const JobId id(request->job_id());
  const auto first_rank = static_cast<size_t>(std::max(request->first_rank(), 0));
  refuse_unless_ok(call, loop_.query([=](const Core* core, Instant now) {
    if (core == nullptr) return call.finish(stopped());
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end()) {
      return call.finish(absl::NotFoundError(absl::StrCat("there is no job ", id.value())));
    }
    *response = job_to_proto(*core, job->second, now, first_rank);
    call.finish(absl::OkStatus());
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListJobs(grpc::CallbackServerContext* context,
                                                  const v1::ListJobsRequest* request,
                                                  v1::ListJobsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListJobs");
  if (is_shed(call)) return call.reactor();
  const bool active_only = request->active_only();
  const uint64_t before = request->before_job_id() == 0 ? UINT64_MAX : request->before_job_id();
  refuse_unless_ok(call, loop_.query([=](const Core* core, Instant now) {
    if (core == nullptr) return call.finish(stopped());
    size_t bytes = 0;
    auto it = std::make_reverse_iterator(core->jobs().lower_bound(JobId(before)));
    for (; it != core->jobs().rend(); ++it) {
      if (active_only && is_terminal(it->second.state)) continue;
      v1::Job job = job_summary_to_proto(*core, it->second, now);
      bytes += job.ByteSizeLong();
      const bool is_full = response->jobs_size() >= kJobsListedMax || bytes > kListBytesMax;
      if (is_full && response->jobs_size() > 0) {
        response->set_more(true);
        break;
      }
      *response->add_jobs() = std::move(job);
    }
    call.finish(absl::OkStatus());
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListWorkers(grpc::CallbackServerContext* context,
                                                     const v1::ListWorkersRequest* request,
                                                     v1::ListWorkersResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListWorkers");
  if (is_shed(call)) return call.reactor();
  const WorkerName after(request->after());
  refuse_unless_ok(call, loop_.query([=](const Core* core, Instant now) {
    if (core == nullptr) return call.finish(stopped());
    const Use use(*core);
    std::set<WorkerName> names;
    for (auto it = core->workers().upper_bound(after); it != core->workers().end(); ++it)
      names.insert(names.end(), it->first);
    for (auto it = core->nodes().upper_bound(after); it != core->nodes().end(); ++it)
      if (it->second.excluded || it->second.check_due) names.insert(it->first);
    size_t bytes = 0;
    for (const WorkerName& name : names) {
      v1::WorkerInfo info = info_of(*core, use, name, now);
      bytes += info.ByteSizeLong();
      if (bytes > kListBytesMax && response->workers_size() > 0) {
        response->set_more(true);
        break;
      }
      *response->add_workers() = std::move(info);
    }
    call.finish(absl::OkStatus());
  }));
  return call.reactor();
}

// Answers with the worker's state after the request. Runs on the loop's thread without blocking.
void MusterService::answer_with_worker(const absl::Status& status, const WorkerName& name,
                                       v1::WorkerInfo& response, const UnaryCall& call) {
  if (!status.ok()) return call.finish(status);
  refuse_unless_ok(call, loop_.query([&response, name, call](const Core* core, Instant now) {
    if (core == nullptr) return call.finish(stopped());
    response = info_of(*core, Use(*core), name, now);
    call.finish(absl::OkStatus());
  }));
}

grpc::ServerUnaryReactor* MusterService::ExcludeWorker(grpc::CallbackServerContext* context,
                                                       const v1::ExcludeWorkerRequest* request,
                                                       v1::ExcludeWorkerResponse* response) {
  const UnaryCall call(*context, *metrics_, "ExcludeWorker");
  NodeExcludeRequested event = exclusion_from_proto(*request);
  const WorkerName name = event.worker;
  refuse_unless_ok(
      call, loop_.exclude_node(std::move(event), [=, this](const absl::Status& status, const Core&,
                                                           const Job*, Instant) {
        answer_with_worker(status, name, *response->mutable_worker(), call);
      }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::AdmitWorker(grpc::CallbackServerContext* context,
                                                     const v1::AdmitWorkerRequest* request,
                                                     v1::AdmitWorkerResponse* response) {
  const UnaryCall call(*context, *metrics_, "AdmitWorker");
  NodeAdmitRequested event;
  event.worker = WorkerName(request->worker());
  const WorkerName name = event.worker;
  refuse_unless_ok(
      call, loop_.admit_node(std::move(event), [=, this](const absl::Status& status, const Core&,
                                                         const Job*, Instant) {
        answer_with_worker(status, name, *response->mutable_worker(), call);
      }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJobHistory(grpc::CallbackServerContext* context,
                                                       const v1::GetJobHistoryRequest* request,
                                                       v1::GetJobHistoryResponse* response) {
  const UnaryCall call(*context, *metrics_, "GetJobHistory");
  if (is_shed(call)) return call.reactor();
  const JobId id(request->job_id());
  const uint32_t before = request->before_attempt() == 0 ? UINT32_MAX : request->before_attempt();
  const size_t limit = std::min<size_t>(request->limit() == 0 ? kAttemptsListed : request->limit(),
                                        kAttemptsKeptMax);
  // Runs second: adds the attempts that have ended.
  const auto add_ended = [=](Storage* storage) {
    if (storage == nullptr) return call.finish(stopped());
    auto ended = storage->attempts(id, Attempt(before), limit + 1);
    if (!ended.ok()) return call.finish(ended.status());
    // The current attempt may have ended since it was added.
    if (!ended->empty() && response->attempts_size() > 0 &&
        ended->front().attempt() == response->attempts(0).attempt())
      response->clear_attempts();
    size_t bytes = 0;
    for (v1::JobAttempt& attempt : *ended) {
      bytes += attempt.ByteSizeLong();
      if (response->attempts_size() == static_cast<int>(limit) || bytes > kListBytesMax) {
        response->set_more(true);
        break;
      }
      *response->add_attempts() = std::move(attempt);
    }
    call.finish(absl::OkStatus());
  };
  refuse_unless_ok(call, loop_.query([=, this](const Core* core, Instant) {
    if (core == nullptr) return call.finish(stopped());
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end())
      return call.finish(absl::NotFoundError(absl::StrCat("there is no job ", id.value())));
    const std::optional<AttemptRecord> current = core->attempt_of(job->second);
    if (current && current->attempt.value() < before)
      *response->add_attempts() = attempt_to_proto(*current);
    refuse_unless_ok(call, loop_.read(add_ended));
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListIncidents(grpc::CallbackServerContext* context,
                                                       const v1::ListIncidentsRequest* request,
                                                       v1::ListIncidentsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListIncidents");
  if (is_shed(call)) return call.reactor();
  const JobId job(request->job_id());
  const size_t limit = request->limit() == 0 ? kIncidentsListed : request->limit();
  refuse_unless_ok(call, loop_.read([=](Storage* storage) {
    if (storage == nullptr) return call.finish(stopped());
    auto incidents = storage->incidents(job, std::min(limit, kIncidentsKeptMax));
    size_t bytes = 0;
    if (incidents.ok()) {
      for (v1::Incident& incident : *incidents) {
        bytes += incident.ByteSizeLong();
        if (bytes > kListBytesMax) break;
        *response->add_incidents() = std::move(incident);
      }
    }
    call.finish(incidents.status());
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetIncident(grpc::CallbackServerContext* context,
                                                     const v1::GetIncidentRequest* request,
                                                     v1::Incident* response) {
  const UnaryCall call(*context, *metrics_, "GetIncident");
  if (is_shed(call)) return call.reactor();
  const IncidentId id(request->incident_id());
  refuse_unless_ok(call, loop_.read([=](Storage* storage) {
    if (storage == nullptr) return call.finish(stopped());
    auto incident = storage->incident(id);
    const absl::Status status = incident.status();
    if (status.ok()) *response = *std::move(incident);
    call.finish(status);
  }));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::DumpJobStacks(grpc::CallbackServerContext* context,
                                                       const v1::DumpJobStacksRequest* request,
                                                       v1::DumpJobStacksResponse* response) {
  const UnaryCall call(*context, *metrics_, "DumpJobStacks");
  if (is_shed(call)) return call.reactor();
  StacksRequested event;
  event.job = JobId(request->job_id());
  event.rank = Rank(request->rank());
  event.program_dumps = request->program_dumps();
  refuse_unless_ok(call,
                   loop_.stacks(event, [=](const absl::Status& status, const JobStackDump* dump) {
                     if (dump != nullptr) *response = dump_to_proto(*dump);
                     call.finish(status);
                   }));
  return call.reactor();
}

bool MusterService::is_shed(const UnaryCall& call) {
  const absl::Status status = loop_.admit_read(monotonic_now());
  if (status.ok()) return false;
  if (!absl::IsResourceExhausted(status)) {
    call.finish(status);
    return true;
  }
  metrics_->count_shed(call.method());
  call.refuse(status, loop_.retry_after());
  return true;
}

absl::Status MusterService::admit_stream(grpc::CallbackServerContext& context, const char* method) {
  const absl::Status status = loop_.admit_read(monotonic_now());
  if (!absl::IsResourceExhausted(status)) return status;
  metrics_->count_shed(method);
  add_retry_hint(context, loop_.retry_after());
  return status;
}

grpc::ServerWriteReactor<v1::Job>* MusterService::WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) {
  const auto stream = std::make_shared<JobStream>(streams_.take(), metrics_);
  stream->begin(loop_, JobId(request->job_id()), admit_stream(*context, "WatchJob"));
  return stream.get();
}

grpc::ServerWriteReactor<v1::LogChunk>* MusterService::FollowLogs(
    grpc::CallbackServerContext* context, const v1::FollowLogsRequest* request) {
  const auto stream = std::make_shared<LogStream>(logs_, *request, streams_.take(), metrics_);
  stream->begin(admit_stream(*context, "FollowLogs"));
  return stream.get();
}

}  // namespace muster::coordinator

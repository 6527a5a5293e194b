#include "coordinator/shell/grpc/muster_service.h"

#include <chrono>
#include <memory>
#include <utility>

#include "coordinator/shell/grpc/job_stream.h"
#include "coordinator/shell/grpc/log_stream.h"
#include "coordinator/shell/grpc/unary_call.h"

namespace muster::coordinator {
namespace {

// The time after which the loop has taken the events of a full queue.
constexpr Duration kFullQueueRetry = std::chrono::seconds(2);

// Answers in place of the loop if the request was rejected.
void refuse_unless_ok(const UnaryCall& call, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return call.refuse(status, kFullQueueRetry);
  if (!status.ok()) call.finish(status);
}

// Writes the answer of a call to `response`, and ends the call.
template <class T>
MusterCalls::Done<T> answer_to(const UnaryCall& call, T* response) {
  return [=](const absl::Status& status, T answer) {
    *response = std::move(answer);
    call.finish(status);
  };
}

}  // namespace

grpc::ServerUnaryReactor* MusterService::SubmitJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitJobRequest* request,
                                                   v1::SubmitJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "SubmitJob");
  refuse_unless_ok(call, calls_.submit_job(*request, answer_to(call, response->mutable_job())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CancelJob(grpc::CallbackServerContext* context,
                                                   const v1::CancelJobRequest* request,
                                                   v1::CancelJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "CancelJob");
  refuse_unless_ok(call, calls_.cancel_job(*request, answer_to(call, response->mutable_job())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::CheckpointJob(grpc::CallbackServerContext* context,
                                                       const v1::CheckpointJobRequest* request,
                                                       v1::CheckpointJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "CheckpointJob");
  refuse_unless_ok(call, calls_.checkpoint_job(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::UpdateJob(grpc::CallbackServerContext* context,
                                                   const v1::UpdateJobRequest* request,
                                                   v1::UpdateJobResponse* response) {
  const UnaryCall call(*context, *metrics_, "UpdateJob");
  refuse_unless_ok(call, calls_.update_job(*request, answer_to(call, response->mutable_job())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJob(grpc::CallbackServerContext* context,
                                                const v1::GetJobRequest* request,
                                                v1::Job* response) {
  const UnaryCall call(*context, *metrics_, "GetJob");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.get_job(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListJobs(grpc::CallbackServerContext* context,
                                                  const v1::ListJobsRequest* request,
                                                  v1::ListJobsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListJobs");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_jobs(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListWorkers(grpc::CallbackServerContext* context,
                                                     const v1::ListWorkersRequest* request,
                                                     v1::ListWorkersResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListWorkers");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_workers(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ExcludeWorker(grpc::CallbackServerContext* context,
                                                       const v1::ExcludeWorkerRequest* request,
                                                       v1::ExcludeWorkerResponse* response) {
  const UnaryCall call(*context, *metrics_, "ExcludeWorker");
  refuse_unless_ok(call,
                   calls_.exclude_worker(*request, answer_to(call, response->mutable_worker())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::AdmitWorker(grpc::CallbackServerContext* context,
                                                     const v1::AdmitWorkerRequest* request,
                                                     v1::AdmitWorkerResponse* response) {
  const UnaryCall call(*context, *metrics_, "AdmitWorker");
  refuse_unless_ok(call,
                   calls_.admit_worker(*request, answer_to(call, response->mutable_worker())));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetJobHistory(grpc::CallbackServerContext* context,
                                                       const v1::GetJobHistoryRequest* request,
                                                       v1::GetJobHistoryResponse* response) {
  const UnaryCall call(*context, *metrics_, "GetJobHistory");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.job_history(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::ListIncidents(grpc::CallbackServerContext* context,
                                                       const v1::ListIncidentsRequest* request,
                                                       v1::ListIncidentsResponse* response) {
  const UnaryCall call(*context, *metrics_, "ListIncidents");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.list_incidents(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::GetIncident(grpc::CallbackServerContext* context,
                                                     const v1::GetIncidentRequest* request,
                                                     v1::Incident* response) {
  const UnaryCall call(*context, *metrics_, "GetIncident");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.get_incident(*request, answer_to(call, response)));
  return call.reactor();
}

grpc::ServerUnaryReactor* MusterService::DumpJobStacks(grpc::CallbackServerContext* context,
                                                       const v1::DumpJobStacksRequest* request,
                                                       v1::DumpJobStacksResponse* response) {
  const UnaryCall call(*context, *metrics_, "DumpJobStacks");
  if (is_shed(call)) return call.reactor();
  refuse_unless_ok(call, calls_.dump_stacks(*request, answer_to(call, response)));
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

// The requests of people and programs, as queries and events of the core loop. The gRPC service and
// the page's API are made of these calls, so that both give the same answers.
//
// Each method returns the error of CoreLoop's methods, and then does not call `done`. Otherwise
// `done` is called once, on the loop's thread, and must not block. Requests about a job that does
// not belong to the caller (core/records/caller.h) end with PermissionDenied. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/shell/loop/core_loop.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

constexpr int kJobsListedMax = 1'000;

// Selects jobs beyond the fields of ListJobsRequest.
struct JobFilter {
  int limit = kJobsListedMax;
  std::optional<JobState> state = std::nullopt;
  // a part of the name, the user or the reason, in any case; empty: every job
  std::string search = {};
};

class MusterCalls {
 public:
  // `answer` is empty unless the status is OK.
  template <class T>
  using Done = std::function<void(const absl::Status& status, T answer)>;

  // Requires that `loop` outlives the calls.
  explicit MusterCalls(CoreLoop& loop) : loop_(loop) {}

  absl::Status submit_job(const Caller& caller, const v1::SubmitJobRequest& request,
                          Done<v1::Job> done);
  absl::Status cancel_job(const Caller& caller, const v1::CancelJobRequest& request,
                          Done<v1::Job> done);
  absl::Status checkpoint_job(const Caller& caller, const v1::CheckpointJobRequest& request,
                              Done<v1::CheckpointJobResponse> done);
  absl::Status update_job(const Caller& caller, const v1::UpdateJobRequest& request,
                          Done<v1::Job> done);
  // `ranks_max`: the maximum number of ranks in the answer.
  absl::Status get_job(const v1::GetJobRequest& request, Done<v1::Job> done,
                       size_t ranks_max = SIZE_MAX);
  absl::Status list_jobs(const v1::ListJobsRequest& request, Done<v1::ListJobsResponse> done,
                         JobFilter filter = {});
  absl::Status job_history(const v1::GetJobHistoryRequest& request,
                           Done<v1::GetJobHistoryResponse> done);
  absl::Status list_workers(const v1::ListWorkersRequest& request,
                            Done<v1::ListWorkersResponse> done);
  // Returns what list_workers() lists, in one part. Called on the loop's thread.
  static std::vector<v1::WorkerInfo> all_workers(const Core& core, Instant now);
  // NotFound for a worker that is neither registered nor has a record.
  absl::Status get_worker(const std::string& name, Done<v1::WorkerInfo> done);
  absl::Status exclude_worker(const v1::ExcludeWorkerRequest& request, Done<v1::WorkerInfo> done);
  absl::Status admit_worker(const v1::AdmitWorkerRequest& request, Done<v1::WorkerInfo> done);
  // sweep_calls.cc
  absl::Status check_nodes(const v1::CheckNodesRequest& request, Done<v1::NodeSweep> done);
  absl::Status get_sweep(const v1::GetNodeSweepRequest& request, Done<v1::NodeSweep> done);
  absl::Status list_shares(Done<v1::ListSharesResponse> done);
  absl::Status list_node_checks(const v1::ListNodeChecksRequest& request,
                                Done<v1::ListNodeChecksResponse> done);
  absl::Status list_incidents(const v1::ListIncidentsRequest& request,
                              Done<v1::ListIncidentsResponse> done);
  absl::Status get_incident(const Caller& caller, const v1::GetIncidentRequest& request,
                            Done<v1::Incident> done);
  absl::Status dump_stacks(const Caller& caller, const v1::DumpJobStacksRequest& request,
                           Done<v1::DumpJobStacksResponse> done);

  // Returns NotFound with the number of a job that does not exist.
  static absl::Status no_job(JobId id);

 private:
  CoreLoop::ReplyFn worker_reply(const WorkerName& name, Done<v1::WorkerInfo> done);

  CoreLoop& loop_;
};

}  // namespace muster::coordinator

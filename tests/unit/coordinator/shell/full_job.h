// Returns a job with a value in every stored field. The values agree with each other.
#pragma once

#include "coordinator/core/records/job.h"
#include "tests/unit/coordinator/shell/full_account.h"
#include "tests/unit/every_job_field.h"

namespace muster::coordinator {

inline Job full_job() {
  Job job;
  job.id = JobId(7);
  set_plain_fields(job.spec);
  job.spec.name = "llama";
  job.spec.priority = -3;
  // The values of the placement below.
  job.spec.nodes = 1;
  job.spec.ranks_per_node = 2;
  job.spec.train_config_json = "{\"steps\": 5, \"name\": \"é\"}";
  job.spec.environment = {{"A", "b"}};
  job.spec.stack_traces = {.collect = true, .to_cloud = true, .interval_seconds = 7};
  job.spec.min_nodes = 1;
  job.spec.smaller = {{1, "{\"é\": 1}"}};
  job.state = JobState::kRestarting;
  job.reason = "rank 1 died";
  job.attempt = Attempt(3);
  job.cancel_requested = true;
  job.placement = {{Rank(0), WorkerName("n1"), 0, Incarnation(UINT64_MAX)},
                   {Rank(1), WorkerName("n1"), 1, Incarnation(5)}};
  job.faults = {{Rank(1), WorkerName("n1"), 9, -1, 17, "killed", 99, true,
                 IncidentKind::kOutOfMemory, 10, 12, 18, Duration(21), true, true, true,
                 "ValueError at job/train.py:31 step", "program error", "job/train.py:31 step"}};
  job.faults.back().peer = WorkerName("n2");
  job.faults.back().nodes_without_link = {WorkerName("n1"), WorkerName("n3")};
  job.faults.back().revision = 2;
  job.faults.back().for_update = job.faults.back().is_unreported = true;
  job.faults.back().for_time_limit = true;
  job.restarts_used = {{Cause::kRankDied, {1, 5, 6, Duration(22)}}, {Cause::kPreempted, {3, 7, 8}}};
  job.submitted_unix_ns = 1;
  job.first_started_unix_ns = 1;
  job.started_unix_ns = 2;
  job.up_unix_ns = 4;
  job.finished_unix_ns = 3;
  job.exit_code = 137;
  job.is_futile = true;
  job.rendezvous_address = "n1:1";
  job.stop_grace = std::chrono::milliseconds(24'500);
  job.program_port = 12'345;
  job.exits = {{Rank(1), -1, 9, 17, "detail", ExitCause::kOutOfMemory, true},
               {Rank(0), 1, 0, 17, "GPU 0 is lost", ExitCause::kGpuFault, false, true, true},
               {Rank(1), 1, 0, -1, "could not be started", ExitCause::kNodeFault},
               {Rank(0), -1, 9, 3, "its worker stood still", ExitCause::kWorkerStalled},
               {Rank(1), 1, 0, 3, "Connection closed by peer", ExitCause::kUnknown, true, false,
                false, "eth0 has been without a link for 2 s (down)", true}};
  job.restarts = 2;
  job.previous_nodes = {WorkerName("n0"), WorkerName("n2")};
  job.log_leaders = {{Attempt(1), "a:7070"}, {Attempt(2), "b:7070"}};
  job.trained_on = {WorkerName("n0"), WorkerName("n1")};
  job.resizes = 3;
  job.ended_without_proof = true;
  job.slow_nodes = {{WorkerName("node3"), IncidentId(8), 5, true, 3, 2, 1.5, 0.25, 6, true, true}};
  job.revision = 3;
  job.newest_revision = 4;
  job.revisions = {{2, "steps=5", "r-2", 101, "passed its trial of 5 steps", true},
                   {3, "command=v3", "r-3", 102, ""}};
  job.update =
      JobUpdate{{5, "command=v5", "r-5", 103, "no"}, job.spec, 7, UpdateTime::kAtCheckpoint, 11};
  job.update->spec.command = {"v5"};
  job.trial = Trial{job.spec, 2, 8, 9, 10};
  job.trial->former.command = {"v2"};
  job.keeps_nodes = true;
  job.is_backfilled = true;
  job.waits_for = job.spec.dependencies = {{JobId(3), DependencyKind::kAfterAny},
                                           {JobId(5), DependencyKind::kAfterNotOk}};
  job.not_before_unix_ns = 77;
  job.incident = {IncidentId(12), "rank 1 hung"};
  job.recovering = IncidentId(12);
  job.account = full_account();
  return job;
}

}  // namespace muster::coordinator

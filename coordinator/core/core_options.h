// Times and limits of the coordinator core. The defaults are those of the flags.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "common/time/time.h"
#include "coordinator/core/hang/hang_budgets.h"
#include "coordinator/core/queue/input_limits.h"

namespace muster::coordinator {

// Determines the action of a job that a node slows down.
enum class SlowNodePolicy {
  kReplace,  // leaves it at its next checkpoint, if another node is free and the move pays
  kReport,   // nothing: an incident names the node
};

struct CoreOptions {
  // The coordinator's version. Workers must have the same version.
  std::string version;
  // The address of this coordinator if it is one of several with a common store; empty: it is the
  // only one.
  std::string coordinator;
  Duration heartbeat_interval = std::chrono::seconds(1);
  // The heartbeats per second of all workers together. A larger fleet has longer intervals and
  // leases (fleet/pace.h): 12,500 workers send one per second, which takes about half a core.
  int64_t heartbeat_budget = 12'500;
  // The silence of a worker after which it and its ranks are lost.
  Duration worker_lease = std::chrono::seconds(10);
  // The time from StartRanks to the last rank's first heartbeat.
  Duration start_budget = std::chrono::seconds(60);
  // The time from SIGTERM to SIGKILL, for ranks to write a checkpoint.
  Duration cancel_grace = std::chrono::seconds(4);
  // Whether a cancelled job whose save makes progress gets more time than cancel_grace
  // (common/progress/save_progress.h). False if an outer system, such as Slurm, limits the time.
  bool cancel_waits_for_save = true;
  // The time from SIGTERM to SIGKILL when a fault ends the attempt of a user program, which may
  // still write logs or save state. The built-in trainer gets no grace, because it resumes from
  // checkpoints.
  Duration program_grace = std::chrono::seconds(1);
  // The time from SIGKILL until a process that is blocked in the kernel counts as unkillable, and
  // the job continues without it. A killable process ends within milliseconds, or within a second
  // or two on a busy machine.
  Duration reaped_within = std::chrono::seconds(5);
  // As reaped_within, for a process that is still running, because it may be releasing hundreds of
  // gigabytes of memory.
  Duration torn_down_within = std::chrono::seconds(30);
  // The time to wait for the report of the rank that failed first, when only victims have reported.
  Duration culprit_wait = std::chrono::seconds(2);
  // The silence of a worker with running ranks after which its job is suspect. Workers with ranks
  // send several heartbeats per heartbeat_interval; the default is longer than three of their
  // intervals, so that a short network outage causes no suspicion.
  Duration unreachable_after = std::chrono::milliseconds(900);
  // As unreachable_after, for a worker whose stream broke while peers report the loss of its ranks.
  Duration broken_stream_wait = std::chrono::milliseconds(500);
  // The silence that opens an incident. From this time on, the stacks of other ranks can confirm
  // that the worker's ranks are lost, if other nodes are free for these ranks. A network card that
  // loses its link for 0.2 s is silent for 1.3 s, because the kernel resolves its neighbour's
  // address once a second. A restart from a checkpoint takes some seconds: a longer wait costs more
  // than a wrong verdict.
  Duration unreachable_confirm = std::chrono::milliseconds(2500);
  // As unreachable_confirm, if no other node is free: the job would wait for the node anyway, and a
  // machine that pauses for 3 s, for example in a live migration, may return.
  Duration unreachable_wait = std::chrono::milliseconds(3500);
  HangBudgets hang;
  // The time whose median step is compared with the job's plan and with its earlier steps, and for
  // which a node has to be slow. Shorter periods, such as a busy network for a minute, need no
  // attention.
  Duration slower_than_plan_window = std::chrono::minutes(5);
  SlowNodePolicy slow_nodes = SlowNodePolicy::kReplace;
  // The interval between the two stack samples of a dump, which distinguish a slow job from a stuck
  // one.
  Duration samples_apart = std::chrono::seconds(1);
  // The time limit of each sample.
  Duration sample_deadline = std::chrono::milliseconds(1500);
  // The time limit of each sample if a user also requests the dumps that programs make themselves.
  Duration program_dumps_deadline = std::chrono::seconds(10);
  // The time to wait for the symbols of an incident's stacks.
  Duration symbols_wait = std::chrono::seconds(5);
  // The time for which a job that can run on fewer nodes waits for a missing node after a fault. A
  // killed worker or a node's network often recovers within seconds, and growing later costs
  // another start.
  Duration full_size_wait = std::chrono::seconds(5);
  // The time for which a job that lost a node, and cannot run without it, reserves its remaining
  // nodes against later jobs in the queue. The time starts when the attempt ends. A rebooted
  // machine returns within this time.
  // It would cost more than some idle minutes if a job that runs for days got all these nodes.
  // Likewise, a job that has not started keeps its place in the queue for this time while workers
  // are away without which it cannot run.
  Duration reservation_time = std::chrono::minutes(5);
  // A job that runs on fewer nodes grows when more nodes have been free for `grow_stable`, and at
  // least `grow_after` after its start. `grow_stable` doubles each time the job grows, because a
  // node that fails and returns repeatedly costs a start each time.
  Duration grow_stable = std::chrono::seconds(30);
  Duration grow_after = std::chrono::minutes(2);
  // The time from SIGTERM to SIGKILL for ranks that are stopped so that their job can grow. No
  // other job waits for their nodes, and unsaved work is lost.
  Duration grow_grace = std::chrono::minutes(2);
  // The age of a node's newest deep check after which the node is checked again when it is idle and
  // no job waits; zero: only on request.
  Duration idle_check_every = Duration::zero();
  // The maximum length of the queue. A longer queue indicates a submission loop.
  size_t queued_jobs_max = 10'000;
  // The maximum of bytes_of() over the specs of all jobs that have not ended: about 13 KB for each
  // of queued_jobs_max. The bytes are in memory, in the state file and in each restart.
  size_t queued_bytes_max = size_t{128} << 20;
  // The number of ended jobs that are retained; the records of the oldest are deleted first.
  size_t finished_jobs_max = 1'000;
  // The maximum of bytes_of() over the specs of the retained jobs.
  size_t finished_bytes_max = size_t{128} << 20;
  InputLimits limits;
};

}  // namespace muster::coordinator

// Times and limits of the coordinator core. The defaults are those of the flags.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "common/time.h"
#include "coordinator/core/hang/hang_budgets.h"
#include "coordinator/core/queue/input_limits.h"

namespace muster::coordinator {

struct CoreOptions {
  // The coordinator's version. Workers must have the same.
  std::string version;
  Duration heartbeat_interval = std::chrono::seconds(1);
  // Silence after which a worker and its ranks are lost.
  Duration worker_lease = std::chrono::seconds(10);
  // The time from StartRanks to the last rank's first heartbeat.
  Duration start_budget = std::chrono::seconds(60);
  // The time from SIGTERM to SIGKILL, for ranks to write a checkpoint.
  Duration cancel_grace = std::chrono::seconds(4);
  // A cancelled job whose save makes progress gets more time than that (save_progress.h). False if
  // somebody else bounds the time, such as Slurm.
  bool cancel_waits_for_save = true;
  // The time from SIGTERM to SIGKILL when a fault ends the attempt of a user program, which may
  // still write logs or save state. The built-in trainer gets none, because it has checkpoints.
  Duration last_words = std::chrono::seconds(1);
  // The time from SIGKILL until a process that is blocked in the kernel counts as unkillable; its
  // job then continues without it. A killable process ends within milliseconds, on a busy machine
  // within a second or two.
  Duration reaped_within = std::chrono::seconds(5);
  // The same limit for a process that is still running: it may be releasing hundreds of gigabytes
  // of memory.
  Duration torn_down_within = std::chrono::seconds(30);
  // How long to wait for the report of the rank that failed first, when only victims have reported.
  Duration culprit_wait = std::chrono::seconds(2);
  // Silence of a worker with running ranks after which its job is suspect. Workers with
  // ranks send several heartbeats per heartbeat_interval; this is longer than three of their
  // intervals, so that a short network outage causes no suspicion.
  Duration unreachable_after = std::chrono::milliseconds(900);
  // The same for a worker whose stream broke, if peers report that its ranks are lost.
  Duration broken_stream_wait = std::chrono::milliseconds(500);
  // Silence that opens an incident. From then on, the stacks of other ranks can confirm that the
  // worker's ranks are lost, if other nodes are free for them. A network card that loses its link
  // for 0.2 s is silent for 1.3 s, because the kernel resolves its neighbour's address once a
  // second. A restart takes some seconds with its checkpoint: waiting longer than that costs more
  // than a wrong verdict.
  Duration unreachable_confirm = std::chrono::milliseconds(2500);
  // The same if no other node is free: the job would wait for the node anyway, and a machine that
  // pauses for 3 s, such as one in live migration, may come back.
  Duration unreachable_wait = std::chrono::milliseconds(3500);
  HangBudgets hang;
  // The interval between two samples of stacks, by which a slow job is distinguished from a stuck
  // one.
  Duration samples_apart = std::chrono::seconds(1);
  Duration sample_deadline = std::chrono::milliseconds(1500);
  // The time limit of each sample if a user also requests the dumps that programs make themselves.
  Duration program_dumps_deadline = std::chrono::seconds(10);
  Duration symbols_wait = std::chrono::seconds(5);
  // How long a job that can run on fewer nodes waits for a missing node after a fault. A killed
  // worker or a node's network often recovers within seconds, and growing later costs another
  // start.
  Duration whole_wait = std::chrono::seconds(5);
  // The time for which a job that lost a node, and cannot run without it, reserves its remaining
  // nodes against later jobs in the queue. It starts when the attempt ends. A rebooted machine is
  // back within this time.
  // Losing all nodes to a job that runs for days would cost more than some idle minutes.
  Duration keep_nodes = std::chrono::minutes(5);
  // A job that runs on fewer nodes grows when more nodes have been free for `grow_stable`, and at
  // least `grow_after` after its start. `grow_stable` doubles each time the job grows, because a
  // node that comes and goes costs a start each time.
  Duration grow_stable = std::chrono::seconds(30);
  Duration grow_after = std::chrono::minutes(2);
  // The time from SIGTERM to SIGKILL for ranks that are stopped so that their job can grow. No
  // other job waits for their nodes, and unsaved work is lost.
  Duration grow_grace = std::chrono::minutes(2);
  // The maximum length of the queue. A longer queue indicates a submission loop.
  size_t queued_jobs_max = 10'000;
  // The number of ended jobs that are retained; the oldest are forgotten first.
  size_t finished_jobs_max = 1'000;
  InputLimits limits;
};

}  // namespace muster::coordinator

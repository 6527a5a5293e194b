// Times and limits of a coordinator's core: a value without behaviour. Its defaults are those of
// the flags.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "common/time.h"
#include "coordinator/core/hang/hang_budgets.h"
#include "coordinator/core/queue/input_limits.h"

namespace muster::coordinator {

struct CoreOptions {
  std::string version;  // workers must say the same
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration worker_lease =
      std::chrono::seconds(10);  // silence after which a worker and its ranks are lost
  Duration start_budget =
      std::chrono::seconds(60);  // from StartRanks to the last rank's first heartbeat
  Duration cancel_grace =
      std::chrono::seconds(4);  // SIGTERM to SIGKILL: time to write a checkpoint
  // The same for programs that are not ours when a fault ends their attempt: for what they have to
  // say or to put away. Our trainer has checkpoints.
  Duration last_words = std::chrono::seconds(1);
  // From SIGKILL to the end of a process that waits in the kernel; after that its job goes on
  // without it. A process that can be killed is gone in milliseconds, on a busy machine in a second
  // or two …
  Duration reaped_within = std::chrono::seconds(5);
  // … unless it is busy giving back hundreds of gigabytes: that is seen, because it runs meanwhile.
  Duration torn_down_within = std::chrono::seconds(30);
  Duration culprit_wait =
      std::chrono::seconds(2);  // for the dead rank's report when only victims reported
  // Silence of a worker with running ranks after which its job is suspicious. More than three
  // heartbeats of a busy worker: less would be a hiccup of the network.
  Duration unreachable_after = std::chrono::milliseconds(900);
  Duration broken_stream_wait = std::chrono::milliseconds(
      500);  // the same of one whose stream broke, when peers of its ranks report them lost
  // Silence that is an incident, and after which the others' stacks may confirm that ranks are
  // lost, if another node is free for them. A network card that lost its link for 0.2 s is silent
  // for 1.3 s, because the kernel asks for its neighbour's address once a second. To wait longer
  // than a restart takes, some seconds with its checkpoint, is dearer than to be wrong.
  Duration unreachable_confirm = std::chrono::milliseconds(2500);
  // The same where none is: without its node the job would wait, too, and one that stands still for
  // 3 s, as one that is migrated does, is back.
  Duration unreachable_wait = std::chrono::milliseconds(3500);
  HangBudgets hang;
  Duration samples_apart =
      std::chrono::seconds(1);  // two samples of the stacks distinguish slow from stuck
  Duration sample_deadline = std::chrono::milliseconds(1500);
  Duration program_dumps_deadline = std::chrono::seconds(10);  // of a sample for which people wait
  Duration symbols_wait = std::chrono::seconds(5);
  // A job that may go on with fewer nodes waits so long after a fault for one that is away: a
  // worker that was killed, or a node's network, is often back within seconds, and to grow costs
  // another start.
  Duration whole_wait = std::chrono::seconds(5);
  // A job that lost a node and cannot go on without it keeps its other nodes from those behind it
  // for so long after its attempt: a machine that is booted anew is back by then, and to wait
  // behind a job of days for having lost a node of many would be worse than some idle minutes.
  Duration keep_nodes = std::chrono::minutes(5);
  // A job that runs smaller goes on on more nodes when they have been free for `grow_stable`, twice
  // as long after each time that it has grown (a node that comes and goes costs a start each time),
  // and not sooner than `grow_after` its start.
  Duration grow_stable = std::chrono::seconds(30);
  Duration grow_after = std::chrono::minutes(2);
  // SIGTERM to SIGKILL of ranks that make way for a larger attempt: nobody waits for their nodes,
  // and what is not saved is lost.
  Duration grow_grace = std::chrono::minutes(2);
  size_t queued_jobs_max = 10'000;   // a queue longer than this is a submission loop gone wrong
  size_t finished_jobs_max = 1'000;  // kept for people to look at; older ones are forgotten
  InputLimits limits;
};

}  // namespace muster::coordinator

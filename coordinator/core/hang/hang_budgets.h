// The time that a job may show no progress, by the phase of its ranks. The values are flags of the
// coordinator.
#pragma once

#include <chrono>

#include "common/time/time.h"

namespace muster::coordinator {

// The longest time without progress for each phase. Clusters differ: the same phase may take
// minutes on one file system and hours on another.
struct HangBudgets {
  Duration floor = std::chrono::seconds(1);  // a shorter standstill is never suspicious
  // The time between two signs of progress within a step, as a multiple of the longest recent step.
  double steps = 2;
  double steps_completed = 3;  // the time between two completed steps, as the same multiple
  Duration first_steps = std::chrono::minutes(10);
  // The additional time that a job gets if its stacks are inconclusive, because a rank that waits
  // for no other rank may be in a long computation or wait for a slow disk. If the standstill
  // before the suspicion was longer, the job gets the length of the standstill instead.
  Duration unsure = std::chrono::seconds(10);
  // The standstill after which an inconclusive hang ends an attempt of a user program, which may
  // not report every phase: if a rank may be working, if no process does anything, and if a process
  // of a rank is stopped. Longer if the program has paused longer before.
  Duration unsure_program = std::chrono::seconds(45);
  Duration unsure_idle = std::chrono::seconds(30);
  Duration unsure_stopped_child = std::chrono::seconds(5);
  // The standstill after which a phase is examined: a stopped or dead rank, or ranks that wait for
  // each other, cannot continue in any phase.
  Duration probe = std::chrono::seconds(30);
  Duration init = std::chrono::minutes(2);
  Duration rendezvous = std::chrono::minutes(5);
  Duration load = std::chrono::minutes(30);
  Duration compile = std::chrono::minutes(30);
  // A multiple of the longest evaluation or checkpoint so far in the attempt, and at least this
  // time until two have been completed; then at least `phase_min`.
  Duration evaluation = std::chrono::minutes(10);
  Duration checkpoint = std::chrono::minutes(10);
  Duration phase_min = std::chrono::minutes(1);
  Duration shutdown = std::chrono::minutes(5);
};

}  // namespace muster::coordinator

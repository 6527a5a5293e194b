// How long a job may show no progress, by the phase of its ranks: flags of the coordinator.
#pragma once

#include <chrono>

#include "common/time.h"

namespace muster::coordinator {

// The longest time without progress for each phase. Clusters differ: the same phase may take
// minutes on one file system and hours on another.
struct HangBudgets {
  Duration floor = std::chrono::seconds(1);  // a shorter standstill is never suspicious
  double steps = 2;                          // multiple of the longest recent step
  double steps_completed = 3;                // the same, between two completed steps
  Duration first_steps = std::chrono::minutes(10);
  // For an inconclusive hang: a rank that waits for no other may be in one long computation or on a
  // slow disk. The actual time is at least as long as the standstill before the suspicion.
  Duration unsure = std::chrono::seconds(10);
  // The same for user programs, which may not report every phase.
  Duration unsure_program = std::chrono::minutes(5);
  Duration init = std::chrono::minutes(2);
  Duration rendezvous = std::chrono::minutes(5);
  Duration load = std::chrono::minutes(30);
  Duration compile = std::chrono::minutes(30);
  Duration evaluation = std::chrono::minutes(10);
  Duration checkpoint = std::chrono::minutes(10);
  Duration shutdown = std::chrono::minutes(5);
};

}  // namespace muster::coordinator

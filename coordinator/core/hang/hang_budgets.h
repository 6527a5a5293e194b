// How long a job may show no progress, by what its ranks are doing: flags of the coordinator.
#pragma once

#include <chrono>

#include "common/time.h"

namespace muster::coordinator {

// How long nothing may move. What a cluster needs differs: file systems take minutes here and hours
// there.
struct HangBudgets {
  Duration floor = std::chrono::seconds(1);  // no shorter silence is suspicious
  double steps = 2;                          // times the longest of the last steps
  double steps_completed = 3;                // the same, from one completed step to the next
  Duration first_steps = std::chrono::minutes(10);
  // For what stands still and may go on: a rank that waits for nobody, in one long computation or
  // for a slow disk. At least as long again as nothing moved before it was suspected.
  Duration unsure = std::chrono::seconds(10);
  Duration unsure_program =
      std::chrono::minutes(5);  // of other programs, which may not name every phase
  Duration init = std::chrono::minutes(2);
  Duration rendezvous = std::chrono::minutes(5);
  Duration load = std::chrono::minutes(30);
  Duration compile = std::chrono::minutes(30);
  Duration evaluation = std::chrono::minutes(10);
  Duration checkpoint = std::chrono::minutes(10);
  Duration shutdown = std::chrono::minutes(5);
};

}  // namespace muster::coordinator

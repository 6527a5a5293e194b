// Describes the changes of a job since its last observation, as sentences for the terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Remembers the last observed state of one job.
class JobUpdates {
 public:
  // `coordinator`: the option that follow-up commands need, " --coordinator 127.0.0.1:4711"; "" if
  // the commands find the coordinator without an option.
  explicit JobUpdates(std::string coordinator = "") : coordinator_(std::move(coordinator)) {}

  // Returns sentences about the changes since the previous call: first a new incident and new
  // faults, then a new attempt, state or reason. The text of a fault appears only once, even if a
  // later fault, the incident or the reason repeats it.
  std::vector<std::string> update(const v1::Job& job);

 private:
  const std::string coordinator_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  uint32_t attempt_ = 0;
  int64_t newest_fault_ns_ = 0;
  uint64_t newest_incident_ = 0;
  std::string fault_;  // the text of the newest fault that was reported
};

}  // namespace muster::cli

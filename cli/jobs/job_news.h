// What changed between two looks at a job, as sentences for the terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

class JobNews {
 public:
  // `coordinator`: what commands that look closer must be told, " --coordinator 127.0.0.1:4711"; "" where they find it.
  explicit JobNews(std::string coordinator = "") : coordinator_(std::move(coordinator)) {}

  // The sentences that `job` adds to what was seen before: a new incident and new faults first, then a new attempt, state or reason.
  // A fault's text is said once, not again as the next one's, as the incident's or as the reason.
  std::vector<std::string> update(const v1::Job& job);

 private:
  const std::string coordinator_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  uint32_t attempt_ = 0;
  int64_t newest_fault_ns_ = 0;
  uint64_t newest_incident_ = 0;
  std::string fault_;  // what was said of it
};

}  // namespace muster::cli

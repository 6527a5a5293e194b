// A sample of the core's state for the page: one row per job, and the fleet in numbers. It is taken
// on the loop's thread, so it copies values and makes no text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/shell/web/metric_history.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// The maximum number of rows: all jobs that run, then those that wait, then the newest ended ones.
constexpr size_t kRowsMax = 2'000;

struct JobRow {
  uint64_t id = 0;
  std::string name;
  std::string user;
  JobState state = JobState::kQueued;
  std::string reason;
  int64_t nodes = 0;
  int64_t ranks = 0;
  int64_t gpus = 0;
  int64_t priority = 0;
  int64_t steps = 0;
  double ettr = -1;  // -1: the job has not started
  uint64_t incident = 0;
  int64_t submitted_unix_ns = 0;
  int64_t started_unix_ns = 0;
  int64_t finished_unix_ns = 0;
  bool has_figures = false;
  MetricPoint figures;  // attempt and step are valid without figures, too
};

struct NodeNumbers {
  int64_t total = 0, connected = 0, excluded = 0, leaving = 0, checking = 0;
};
struct ResourceNumbers {
  int64_t total = 0, used = 0, free = 0, excluded = 0;
};

struct FleetSample {
  int64_t unix_ns = 0;
  Duration cost{};  // the loop's time for it
  std::vector<JobRow> rows;
  bool has_more_jobs = false;  // jobs without rows
  std::array<int64_t, kJobStateNames.size()> jobs{};
  int64_t ranks = 0;  // the ranks of all running jobs
  double tokens_per_second = 0;
  size_t open_incidents = 0;
  bool has_totals = false;
  LossTable goodput;  // the sum of all jobs
  Duration queued{};
  NodeNumbers nodes;
  ResourceNumbers slots;
  ResourceNumbers gpus;
  // The requested jobs, with rank 0 and without their configs; null: there is no such job.
  std::map<JobId, std::unique_ptr<v1::Job>> watched;
};

// `with_totals`: also sums the jobs' accounts, and counts nodes, slots and GPUs.
FleetSample sample_fleet(const Core& core, Instant now, int64_t unix_ns, bool with_totals,
                         const std::set<JobId>& watched);

}  // namespace muster::coordinator

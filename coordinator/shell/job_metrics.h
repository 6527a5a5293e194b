// Metrics of jobs. A job has some 45 series, besides those of its kStragglersShown slowest ranks. A
// bounded number of jobs has series, so the page is bounded whatever users submit. Used on the core
// loop's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <prometheus/registry.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// Per job: more scores would add no information.
constexpr size_t kStragglersShown = 16;

// The library searches the complete family for each removed series, so a fleet with many short jobs
// removes them over several pages.
constexpr int kForgottenAtOnce = 16;

// Enough for a scraper to see how a job ended.
constexpr Duration kSeriesKept = std::chrono::minutes(5);
inline bool ended_long_ago(const Job& job, int64_t unix_ns) {
  return is_terminal(job.state) && unix_ns - job.finished_unix_ns > kSeriesKept.count();
}

class JobMetrics {
 public:
  // `shown`: maximum number of jobs with series. Beyond it, a new job replaces one that is queued
  // again, or waits until one has ended; the steps of its attempt are counted in both cases.
  JobMetrics(prometheus::Registry& registry, int32_t shown);
  ~JobMetrics();

  // See Metrics.
  void observe(const Core& core, const Event& event);
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns);
  void update(const Core& core, Instant now, int64_t unix_ns);

 private:
  struct Families;
  struct Series;

  // Returns null if too many jobs have series.
  Series* series_of(const Job& job, const Core& core, int64_t unix_ns);
  bool has_room_for(const Job& job, const Core& core, int64_t unix_ns);
  bool displace_one(const Core& core);
  // Removes series of jobs that have ended.
  void search_room(const Core& core, int64_t unix_ns);
  void remove(const Series& series);
  void update_job(const Job& job, Series& series);
  void update_checkpoint(const Job& job, const Account& account, Series& series);
  void update_figures(const Job& job, Series& series);
  void update_stragglers(const Core& core, const Job& job, Series& series);
  void update_goodput(const Account& account, Instant now, Series& series);

  size_t shown_;
  std::unique_ptr<Families> families_;
  std::map<JobId, std::unique_ptr<Series>> jobs_;
  int64_t room_searched_unix_ns_ = 0;
  // false after a search without result, until something changes
  bool may_displace_ = true;
};

}  // namespace muster::coordinator

// Metrics of jobs. A job has some 52 series, and one for each of its kStragglersShown slowest
// ranks. Only a bounded number of jobs has series, so the page is bounded for any submissions. Used
// on the core loop's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <prometheus/registry.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// The number of straggler scores per job; more scores would add no information.
constexpr size_t kStragglersShown = 16;

// The maximum number of jobs whose series are removed for one page. The library searches the
// complete family for each removed series, so the series of many short jobs are removed over
// several pages.
constexpr int kForgottenAtOnce = 16;

// The time for which the series of an ended job remain, so that a scraper can see how the job
// ended.
constexpr Duration kSeriesKept = std::chrono::minutes(5);
inline bool ended_long_ago(const Job& job, int64_t unix_ns) {
  return is_terminal(job.state) && unix_ns - job.finished_unix_ns > kSeriesKept.count();
}

class JobMetrics {
 public:
  // `shown`: the maximum number of jobs with series. Beyond it, a job with ranks replaces a job
  // that is queued again, or gets its series when another job has ended; the steps of its attempt
  // are counted in both cases.
  JobMetrics(prometheus::Registry& registry, int32_t shown);
  ~JobMetrics();

  // See the methods of Metrics with the same names; update() is called by Metrics::render().
  void observe(const Core& core, const Event& event);
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns);
  void update(const Core& core, Instant now, int64_t unix_ns);

 private:
  struct Families;
  struct Series;

  // Returns the series of the job, which are created on first use; null if too many jobs have
  // series.
  Series* series_of(const Job& job, const Core& core, int64_t unix_ns);
  bool has_room_for(const Job& job, const Core& core, int64_t unix_ns);
  bool displace_one(const Core& core);
  // Removes the series of jobs that ended long ago.
  void search_room(const Core& core, int64_t unix_ns);
  void remove(const Series& series);
  // Shows the figures of the job's plan, which do not hold while it runs at a smaller size.
  void update_plan(const Job& job, Series& series);
  void update_job(const Job& job, Series& series);
  void update_checkpoint(const Job& job, const Account& account, Series& series);
  void update_figures(const Job& job, Series& series);
  void update_stragglers(const Core& core, const Job& job, Series& series);
  void update_goodput(const Account& account, Instant now, Series& series);

  size_t shown_;
  std::unique_ptr<Families> families_;
  std::map<JobId, std::unique_ptr<Series>> jobs_;
  int64_t room_searched_unix_ns_ = 0;
  // False after a search that found no job to replace, until the next search for room.
  bool may_displace_ = true;
};

}  // namespace muster::coordinator

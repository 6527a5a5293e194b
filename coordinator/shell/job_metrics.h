// Metrics of jobs. Of a job there are some 45 series, besides those of its kStragglersShown slowest ranks; a bounded number of jobs has series,
// so that the page has a bound whatever is submitted. On the core loop's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <prometheus/registry.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// Of a job: a thousand ranks' scores would tell no more.
constexpr size_t kStragglersShown = 16;

// Series that go are looked for among all of their family, by the library: of a fleet whose jobs end at once they go with several pages.
constexpr int kForgottenAtOnce = 16;

// Long enough for a scraper to see how a job ended.
constexpr Duration kSeriesKept = std::chrono::minutes(5);
inline bool ended_long_ago(const Job& job, int64_t unix_ns) {
  return is_terminal(job.state) && unix_ns - job.finished_unix_ns > kSeriesKept.count();
}

class JobMetrics {
 public:
  // `shown`: so many jobs have series. Who comes when there are as many takes the place of one that is queued again, or waits until one has
  // ended; the steps of its attempt are then counted all the same.
  JobMetrics(prometheus::Registry& registry, int32_t shown);
  ~JobMetrics();

  // As Metrics'.
  void observe(const Core& core, const Event& event);
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns);
  void update(const Core& core, Instant now, int64_t unix_ns);

 private:
  struct Families;
  struct Series;

  // Null: too many have series.
  Series* series_of(const Job& job, const Core& core, int64_t unix_ns);
  bool has_room_for(const Job& job, const Core& core, int64_t unix_ns);
  bool displace_one(const Core& core);
  // Makes room where jobs have ended.
  void look(const Core& core, int64_t unix_ns);
  void remove(const Series& series);
  void update_job(const Job& job, Series& series);
  void update_checkpoint(const Job& job, const Account& account, Series& series);
  void update_figures(const Job& job, Series& series);
  void update_stragglers(const Core& core, const Job& job, Series& series);
  void update_goodput(const Account& account, Instant now, Series& series);

  size_t shown_;
  std::unique_ptr<Families> families_;
  std::map<JobId, std::unique_ptr<Series>> jobs_;
  int64_t looked_unix_ns_ = 0;
  bool may_displace_ = true;  // since then nobody has looked for one that waits in vain
};

}  // namespace muster::coordinator

// The coordinator's Prometheus metrics, computed from the core's state when they are asked for; only what a
// gauge cannot say afterwards (the time of each step) is gathered as events pass. On the core loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "coordinator/core/core.h"

namespace muster::coordinator {

class Metrics {
 public:
  explicit Metrics(Epoch epoch);
  ~Metrics();

  // After each step of the core. Keeps no more than the core's jobs and those that ended lately, scraped or not.
  void observe(const Core& core, const Event& event);

  // Once for each incident, when it is opened.
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns);

  // The page in Prometheus' text format. Series of jobs that ended more than kSeriesKept ago are gone.
  std::string render(const Core& core, Instant now, int64_t unix_ns);

 private:
  struct Families;
  struct JobSeries;

  JobSeries& series_of(const Job& job, const Core& core, int64_t unix_ns);
  void update_jobs(const Core& core, int64_t unix_ns);
  void prune(const Core& core, int64_t unix_ns);
  void update_job(const Job& job, JobSeries& series);
  void update_stragglers(const Core& core, const Job& job, JobSeries& series);
  void update_workers(const Core& core, Instant now);

  std::unique_ptr<Families> families_;
  std::map<JobId, std::unique_ptr<JobSeries>> jobs_;
};

}  // namespace muster::coordinator

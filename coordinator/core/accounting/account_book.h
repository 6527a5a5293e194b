// The ledgers of all jobs that have not ended. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/accounting/ledger.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

class AccountBook {
 public:
  // Opens the account of a job that has not ended, as it was stored. The time of a live job in the
  // state of an earlier version counts from now on.
  void restore(const Job& job, Instant now);
  // The job enters another state; not its end. `may_be_silent`: it may report nothing of its steps.
  void enter(JobId job, JobTransition transition, bool may_be_silent, Instant now);
  // A page that came with a heartbeat.
  void observe(const Job& job, const RankProgress& progress, const StepTime& time);
  // The job has ended. Returns its final account.
  Account close(JobId job, Instant now, int64_t unix_ns);
  // Requires that the account is open.
  Ledger& of(JobId job) { return books_.at(job).ledger; }

  // The first call with a time of day (not 0) adds the time between the lives of a coordinator.
  void bridge(Instant now, int64_t unix_ns);

  // The account to store, as of `now`. `otherwise`: of a job whose account is closed.
  Account take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns);
  // The account to show.
  Account current(JobId job, const Account& otherwise, Instant now) const;
  // It was last taken so long ago that it should be stored again; sooner when a newer checkpoint is
  // not in it. Requires that the account is open.
  bool is_due(JobId job, Instant now) const;

 private:
  struct Book {
    Ledger ledger;
    Instant taken{};
    int64_t taken_checkpoint = -1;
  };
  std::map<JobId, Book> books_;
  bool bridged_ = false;
};

}  // namespace muster::coordinator

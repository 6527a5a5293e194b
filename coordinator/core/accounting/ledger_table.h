// The ledgers of all jobs that have not ended. Pure; called on one thread at a time.
#pragma once

#include <cstdint>
#include <map>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/accounting/ledger.h"
#include "coordinator/core/event.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class LedgerTable {
 public:
  // Opens the stored account of a job that has not ended. If an earlier version of the program
  // wrote the state, the time of a live job counts from `now` on.
  void restore(const Job& job, Instant now);
  // Records a transition of the job, except its end, in the account and in the job's recovery.
  void enter(const Job& job, JobTransition transition, IncidentBook& incidents,
             const CoreTime& time);
  // Records a progress page from a heartbeat.
  void observe(const Job& job, const RankProgress& progress, const CoreTime& time);
  // Closes the account of a job that has ended, and returns its final state.
  Account close(JobId job, Instant now, int64_t unix_ns);
  // Requires that the account is open.
  Ledger& of(JobId job) { return books_.at(job).ledger; }

  // The first call with a known wall-clock time (not 0) adds the coordinator's downtime to the
  // accounts.
  void bridge(Instant now, int64_t unix_ns);

  // Returns the account to store, as of `now`. Returns `otherwise` for a job whose account is
  // closed.
  Account take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns);
  // Returns the account to display, as of `now`. Returns `otherwise` for a job whose account is
  // closed.
  Account current(JobId job, const Account& otherwise, Instant now) const;
  // Returns whether the account should be stored again: it was last stored long ago, or less long
  // ago and the job has saved a newer checkpoint. Requires that the account is open.
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

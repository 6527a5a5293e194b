// The ledgers of all jobs that have not ended. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/accounting/ledger.h"

namespace muster::coordinator {

// Turns of a job's life that its account is told of.
enum class JobTurn { kStarted, kUp, kCancelled, kGone, kEnded };

class AccountBook {
 public:
  Ledger& open(JobId job, const Account& account, Instant now);
  void close(JobId job) { books_.erase(job); }
  // Of a job whose account is open.
  Ledger& of(JobId job) { return books_.at(job).ledger; }

  // The first time that tells the time of day (not 0): what lies between the lives of a coordinator counts.
  void bridge(Instant now, int64_t unix_ns);

  // For what is stored: as of `now`. `otherwise`: of a job whose account is closed.
  Account take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns);
  Account look(JobId job, const Account& otherwise, Instant now) const;
  // It was last taken so long ago that it should be stored again; sooner where there is a checkpoint that is not in it.
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

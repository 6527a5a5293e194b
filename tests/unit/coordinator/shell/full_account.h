// Returns an account with a value in every field.
#pragma once

#include "coordinator/core/records/account.h"

namespace muster::coordinator {

inline Account full_account() {
  Account account;
  account.mode = Account::Mode::kStopping;
  account.activity = Account::Activity::kSaving;
  account.cause = cause_of(IncidentKind::kHang);
  account.settled.at(TimeClass::kProductive, LossCause::kNone) = std::chrono::seconds(17);
  account.settled.at(TimeClass::kWaiting, LossCause::kPreempted) = std::chrono::seconds(3);
  account.pending = std::chrono::seconds(4);
  account.queued = std::chrono::seconds(5);
  account.has_reported = account.was_silent = true;
  account.best_step = 21;
  account.step = 22;
  account.stall_seconds = 23.5;
  account.unix_ns = 24;
  account.checkpoint_step = 25;
  account.checkpoint_unix_ns = 26;
  account.saves = 27;
  return account;
}

}  // namespace muster::coordinator

#include "coordinator/core/account_book.h"

#include <utility>

namespace muster::coordinator {
namespace {

// What is not stored, the ranks' pages tell again after a restart, but for evaluations.
constexpr Duration kStoredEvery = std::chrono::minutes(5);
// Where everything is killed at once, ranks too, no page is left: what was saved is what the next life must know. Some jobs save after each step.
constexpr Duration kCheckpointsStoredEvery = std::chrono::seconds(1);

}  // namespace

Ledger& AccountBook::open(JobId job, const Account& account, Instant now) {
  return books_.insert_or_assign(job, Book{Ledger(account, now), now}).first->second.ledger;
}

void AccountBook::bridge(Instant now, int64_t unix_ns) {
  if (unix_ns == 0 || std::exchange(bridged_, true)) return;
  for (auto& [job, book] : books_) book.ledger.bridge(now, unix_ns);
}

Account AccountBook::take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns) {
  const auto found = books_.find(job);
  if (found == books_.end()) return otherwise;
  found->second.taken = now;
  return found->second.ledger.account(now, unix_ns);
}

Account AccountBook::look(JobId job, const Account& otherwise, Instant now) const {
  const auto found = books_.find(job);
  return found == books_.end() ? otherwise : found->second.ledger.account(now, otherwise.unix_ns);
}

bool AccountBook::is_due(JobId job, bool newer_checkpoint, Instant now) const {
  return books_.at(job).taken + (newer_checkpoint ? kCheckpointsStoredEvery : kStoredEvery) <= now;
}

}  // namespace muster::coordinator

#include "coordinator/core/accounting/account_book.h"

#include <utility>

namespace muster::coordinator {
namespace {

// What is not stored, the ranks' pages tell again after a restart, but for evaluations.
constexpr Duration kStoredEvery = std::chrono::minutes(5);
// Where everything is killed at once, ranks too, no page is left: what was saved is what the next life must know. Some jobs save after each step.
constexpr Duration kCheckpointsStoredEvery = std::chrono::seconds(1);

}  // namespace

Ledger& AccountBook::open(JobId job, const Account& account, Instant now) {
  return books_.insert_or_assign(job, Book{Ledger(account, now), now, account.checkpoint_step})
      .first->second.ledger;
}

void AccountBook::bridge(Instant now, int64_t unix_ns) {
  if (unix_ns == 0 || std::exchange(bridged_, true)) return;
  for (auto& [job, book] : books_) book.ledger.bridge(now, unix_ns);
}

Account AccountBook::take(JobId job, const Account& otherwise, Instant now, int64_t unix_ns) {
  const auto found = books_.find(job);
  if (found == books_.end()) return otherwise;
  found->second.taken = now;
  found->second.taken_checkpoint = found->second.ledger.checkpoint_step();
  return found->second.ledger.account(now, unix_ns);
}

Account AccountBook::look(JobId job, const Account& otherwise, Instant now) const {
  const auto found = books_.find(job);
  return found == books_.end() ? otherwise : found->second.ledger.account(now, otherwise.unix_ns);
}

bool AccountBook::is_due(JobId job, Instant now) const {
  const Book& book = books_.at(job);
  const bool newer = book.ledger.checkpoint_step() > book.taken_checkpoint;
  return book.taken + (newer ? kCheckpointsStoredEvery : kStoredEvery) <= now;
}

}  // namespace muster::coordinator

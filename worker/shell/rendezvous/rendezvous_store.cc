#include "worker/shell/rendezvous/rendezvous_store.h"

#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

// Number of ended launches whose late ranks are recognised; ranks do not outlive their launch by
// thousands of others.
constexpr size_t kDroppedMax = 10'000;

absl::Status ended(uint64_t job, uint32_t attempt) {
  return absl::FailedPreconditionError(
      absl::StrCat("attempt ", attempt, " of job ", job, " has ended"));
}

}  // namespace

absl::Status RendezvousStore::check_scope(std::string_view key) const {
  const std::vector<absl::string_view> parts = absl::StrSplit(av(key), absl::MaxSplits('/', 2));
  uint64_t job = 0;
  uint32_t attempt = 0;
  const bool ok = parts.size() == 3 && absl::SimpleAtoi(parts[0], &job) &&
                  absl::SimpleAtoi(parts[1], &attempt) && !parts[2].empty();
  if (!ok) {
    return absl::InvalidArgumentError(
        absl::StrCat("key '", printable(key, kShownKeyBytesMax),
                     "' does not begin with its scope, <job>/<attempt>/"));
  }
  return dropped_.contains({JobId(job), Attempt(attempt)}) ? ended(job, attempt) : absl::OkStatus();
}

absl::Status RendezvousStore::set(std::string_view key, std::string_view value) {
  if (auto status = check_scope(key); !status.ok()) return status;
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > limits_.bytes_max || (found == values_.end() && values_.size() >= limits_.keys_max)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the rendezvous store is full: ", values_.size(), " keys, ", bytes_, " bytes"));
  }
  bytes_ = after;
  values_.insert_or_assign(std::string(key), std::string(value));
  std::vector<WaiterId> ids;
  for (auto [it, end] = waiting_by_key_.equal_range(key); it != end; ++it)
    ids.push_back(it->second);
  for (const WaiterId id : ids) {
    auto node = waiting_.find(id);
    if (node == waiting_.end()) continue;
    const Waiter waiter = std::move(node->second.waiter);
    cancel(id);
    waiter(std::string(value));
  }
  return absl::OkStatus();
}

RendezvousStore::WaiterId RendezvousStore::get(const std::string& key, Waiter waiter) {
  if (auto status = check_scope(key); !status.ok()) {
    waiter(status);
    return 0;
  }
  if (const auto found = values_.find(key); found != values_.end()) {
    waiter(found->second);
    return 0;
  }
  const WaiterId id = next_id_++;
  waiting_by_key_.emplace(key, id);
  waiting_.emplace(id, Waiting{key, std::move(waiter)});
  return id;
}

void RendezvousStore::cancel(WaiterId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  for (auto [it, end] = waiting_by_key_.equal_range(found->second.key); it != end; ++it) {
    if (it->second != id) continue;
    waiting_by_key_.erase(it);
    break;
  }
  waiting_.erase(found);
}

void RendezvousStore::forget_scope(const LaunchKey& launch) { dropped_.erase(launch); }

void RendezvousStore::drop_scope(const LaunchKey& launch) {
  dropped_.insert(launch);
  if (dropped_.size() > kDroppedMax) dropped_.erase(dropped_.begin());
  const std::string prefix = absl::StrCat(launch.job.value(), "/", launch.attempt.value(), "/");
  for (auto it = values_.lower_bound(prefix);
       it != values_.end() && it->first.starts_with(prefix);) {
    bytes_ -= it->first.size() + it->second.size();
    it = values_.erase(it);
  }
  std::vector<WaiterId> ids;
  for (auto it = waiting_by_key_.lower_bound(prefix);
       it != waiting_by_key_.end() && it->first.starts_with(prefix); ++it) {
    ids.push_back(it->second);
  }
  for (const WaiterId id : ids) {
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) continue;
    const Waiter waiter = std::move(found->second.waiter);
    cancel(id);
    waiter(ended(launch.job.value(), launch.attempt.value()));
  }
}

}  // namespace muster::worker

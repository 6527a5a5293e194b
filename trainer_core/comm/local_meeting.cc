#include "trainer_core/comm/local_meeting.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

LocalMeeting::LocalMeeting(int size, std::chrono::milliseconds timeout)
    : size_(size),
      timeout_(timeout),
      buffers_(static_cast<size_t>(size)),
      present_(static_cast<size_t>(size)),
      gone_(static_cast<size_t>(size)) {}

absl::Status LocalMeeting::arrive(int rank, std::span<float> buffer) {
  std::unique_lock lock(mutex_);
  if (!reason_.empty()) return broken();
  buffers_[static_cast<size_t>(rank)] = buffer;
  present_[static_cast<size_t>(rank)] = true;
  const uint64_t before = arrivals_;
  if (++arrived_ == size_) {
    arrived_ = 0;
    std::fill(present_.begin(), present_.end(), false);
    ++arrivals_;
    changed_.notify_all();
    return absl::OkStatus();
  }
  const bool in_time =
      changed_.wait_for(lock, timeout_, [&] { return arrivals_ != before || !reason_.empty(); });
  if (arrivals_ != before) return absl::OkStatus();
  if (in_time) return broken();
  const std::string missing = missing_ranks();
  reason_ =
      absl::StrCat("rank ", rank, " gave up after ", timeout_.count(), " ms waiting for ", missing);
  changed_.notify_all();
  return absl::DeadlineExceededError(
      absl::StrCat("no answer within ", timeout_.count(), " ms from ", missing));
}

void LocalMeeting::leave() {
  std::unique_lock lock(mutex_);
  const uint64_t before = departures_;
  if (++left_ == size_) {
    left_ = 0;
    ++departures_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return departures_ != before; });
}

bool LocalMeeting::pair_broken(int a, int b) const {
  return !gone_[static_cast<size_t>(a)].empty() || !gone_[static_cast<size_t>(b)].empty();
}

absl::Status LocalMeeting::pair_status(int a, int b) const {
  const std::string& first = gone_[static_cast<size_t>(a)];
  return absl::UnavailableError(first.empty() ? gone_[static_cast<size_t>(b)] : first);
}

absl::Status LocalMeeting::send(int from, int to, std::span<const float> data) {
  std::unique_lock lock(mutex_);
  const auto key = std::pair(from, to);
  const auto late = [to] {
    return absl::DeadlineExceededError(absl::StrCat("rank ", to, " does not receive"));
  };
  const auto may_go_on = [&] { return !parcels_.contains(key) || pair_broken(from, to); };
  if (!changed_.wait_for(lock, timeout_, may_go_on)) return late();
  if (pair_broken(from, to)) return pair_status(from, to);
  parcels_[key] = {data, false};
  changed_.notify_all();
  const bool in_time = changed_.wait_for(
      lock, timeout_, [&] { return parcels_[key].taken || pair_broken(from, to); });
  const bool taken = parcels_[key].taken;
  parcels_.erase(key);
  changed_.notify_all();
  if (taken) return absl::OkStatus();
  return in_time ? pair_status(from, to) : late();
}

absl::Status LocalMeeting::recv(int from, int to, std::span<float> data) {
  std::unique_lock lock(mutex_);
  const auto key = std::pair(from, to);
  const auto offered = [&] {
    const auto parcel = parcels_.find(key);
    return parcel != parcels_.end() && !parcel->second.taken;
  };
  if (!changed_.wait_for(lock, timeout_, [&] { return offered() || pair_broken(from, to); })) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", from, " does not send"));
  }
  if (!offered()) return pair_status(from, to);
  Parcel& parcel = parcels_[key];
  if (parcel.data.size() != data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", from, " sent ", parcel.data.size(),
                                                   " elements, ", data.size(), " were expected"));
  }
  std::copy(parcel.data.begin(), parcel.data.end(), data.begin());
  parcel.taken = true;
  changed_.notify_all();
  return absl::OkStatus();
}

void LocalMeeting::break_up(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  std::string& gone = gone_[static_cast<size_t>(rank)];
  if (gone.empty()) gone = reason;
  if (reason_.empty()) reason_ = reason;
  changed_.notify_all();
}

std::string LocalMeeting::missing_ranks() const {
  std::string ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!present_[static_cast<size_t>(rank)])
      absl::StrAppend(&ranks, ranks.empty() ? "rank " : ", rank ", rank);
  }
  return ranks;
}

}  // namespace muster::trainer

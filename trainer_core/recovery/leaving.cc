#include "trainer_core/recovery/leaving.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/check.h"

namespace muster::trainer {

namespace {

using nlohmann::json;

// The message of a rank in "gather".
struct PeerRequest {
  int64_t commit = 0;
  bool save = false;

  std::string text() const { return json{{"commit", commit}, {"save", save}}.dump(); }
};

absl::StatusOr<PeerRequest> request_of(const PeerMessage& message) {
  if (!message.status.ok()) return message.status;
  const json request = json::parse(message.body, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return absl::InternalError("a leaving rank sent no step count");
  return PeerRequest{request.at("commit").get<int64_t>(), request.at("save").get<bool>()};
}

// Returns the state to reach: the highest commit, and whether any rank requests a save.
absl::StatusOr<PeerRequest> highest(const std::vector<PeerMessage>& requests) {
  PeerRequest target;
  for (const PeerMessage& message : requests) {
    const auto request = request_of(message);
    if (!request.ok()) return request.status();
    target = {std::max(target.commit, request->commit), target.save || request->save};
  }
  return target;
}

absl::StatusOr<PeerRequest> meet(CheckpointPeers& peers, Leaving& leaving,
                                 const PeerRequest& mine) {
  leaving.wait_for_peers();
  const auto requests = gather_messages(peers, {absl::OkStatus(), mine.text()});
  if (!requests.ok()) return requests.status();
  const auto wanted = highest(*requests);
  const auto shared = share_message(peers, {wanted.status(), wanted.ok() ? wanted->text() : ""});
  if (!shared.ok()) return shared.status();
  auto target = request_of(*shared);
  if (!target.ok()) return target;
  if (!leaving.peers_are_present()) return absl::DeadlineExceededError("this rank has given up");
  const auto there = gather_messages(peers, {leaving.reach(target->commit)});
  if (!there.ok()) return there.status();
  const auto verdict = share_message(peers, {first_error(peers, *there)});
  if (!verdict.ok()) return verdict.status();
  if (!verdict->status.ok()) return verdict->status;
  return target;
}

}  // namespace

void Leaving::start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
}

bool Leaving::started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

bool Leaving::expect_commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !waits_for_expected_ || commits_ < commits_max_ || left_; });
  if (left_) return false;
  expects_commit_ = true;
  return true;
}

void Leaving::expect_no_commit() {
  const std::lock_guard lock(mutex_);
  expects_commit_ = false;
  changed_.notify_all();
}

bool Leaving::begin_commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return commits_ < commits_max_ || left_; });
  if (left_) return false;
  expects_commit_ = false;
  in_commit_ = true;
  return true;
}

void Leaving::end_commit() {
  const std::lock_guard lock(mutex_);
  in_commit_ = false;
  ++commits_;
  changed_.notify_all();
}

bool Leaving::claim(By by) {
  const std::lock_guard lock(mutex_);
  if (!claimed_) by_ = by;
  claimed_ = true;
  return by_ == by;
}

void Leaving::wait_until_left(const absl::Status& why) {
  std::unique_lock lock(mutex_);
  MUSTER_CHECK(claimed_ && by_ == By::kSignalThread);
  over_ = true;
  end_reason_ = why;
  changed_.notify_all();
  changed_.wait(lock, [&] { return left_; });
}

void Leaving::left() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

int64_t Leaving::hold() {
  const std::lock_guard lock(mutex_);
  commits_max_ = commits_ + (in_commit_ ? 1 : 0);
  return commits_max_;
}

void Leaving::wait_for_commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !in_commit_ || over_; });
}

void Leaving::wait_for_expected_commit() {
  std::unique_lock lock(mutex_);
  commits_max_ = commits_ + (in_commit_ || expects_commit_ ? 1 : 0);
  waits_for_expected_ = true;
  changed_.wait(lock, [&] { return over_ || (!in_commit_ && !expects_commit_); });
}

void Leaving::wait_for_peers() {
  const std::lock_guard lock(mutex_);
  meeting_ = Meeting::kWaits;
}

bool Leaving::peers_are_present() {
  const std::lock_guard lock(mutex_);
  if (meeting_ == Meeting::kWaits) meeting_ = Meeting::kTogether;
  return meeting_ == Meeting::kTogether;
}

bool Leaving::give_up() {
  const std::lock_guard lock(mutex_);
  if (meeting_ == Meeting::kWaits) meeting_ = Meeting::kGivenUp;
  return meeting_ == Meeting::kGivenUp;
}

bool Leaving::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return meeting_ == Meeting::kGivenUp;
}

absl::Status Leaving::reach(int64_t commit) {
  std::unique_lock lock(mutex_);
  commits_max_ = std::max(commits_max_, commit);
  changed_.notify_all();
  if (by_ == By::kSignalThread) changed_.wait(lock, [&] { return commits_ >= commit || over_; });
  if (commits_ >= commit) return absl::OkStatus();
  // A rank that has lost a peer is not the cause of the failure.
  const bool lost = absl::IsUnavailable(end_reason_) || absl::IsDeadlineExceeded(end_reason_);
  return absl::Status(
      lost ? end_reason_.code() : absl::StatusCode::kFailedPrecondition,
      absl::StrCat("the step that it was about to complete failed: ", end_reason_.message()));
}

absl::StatusOr<bool> leave_together(CheckpointPeers* peers, Leaving& leaving, bool wants_save) {
  const PeerRequest mine{leaving.hold(), wants_save};
  if (peers == nullptr) {
    if (auto status = leaving.reach(mine.commit); !status.ok()) return status;
    return wants_save;
  }
  const auto target = meet(*peers, leaving, mine);
  leaving.wait_for_commit();
  if (!target.ok()) return target.status();
  return target->save;
}

}  // namespace muster::trainer

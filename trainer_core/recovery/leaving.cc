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

// What a rank says when it leaves.
struct Place {
  int64_t turn = 0;
  bool save = false;

  std::string text() const { return json{{"turn", turn}, {"save", save}}.dump(); }
};

absl::StatusOr<Place> place_of(const PeerMessage& message) {
  if (!message.status.ok()) return message.status;
  const json place = json::parse(message.body, nullptr, /*allow_exceptions=*/false);
  if (!place.is_object()) return absl::InternalError("a rank that leaves says no turn");
  return Place{place.at("turn").get<int64_t>(), place.at("save").get<bool>()};
}

// Where all of them are to be.
absl::StatusOr<Place> highest(const std::vector<PeerMessage>& places) {
  Place target;
  for (const PeerMessage& message : places) {
    const auto place = place_of(message);
    if (!place.ok()) return place.status();
    target = {std::max(target.turn, place->turn), target.save || place->save};
  }
  return target;
}

absl::StatusOr<Place> meet(CheckpointPeers& peers, Leaving& leaving, const Place& mine) {
  leaving.wait_for_peers();
  const auto places = gather_messages(peers, {absl::OkStatus(), mine.text()});
  if (!places.ok()) return places.status();
  const auto wanted = highest(*places);
  const auto told = share_message(peers, {wanted.status(), wanted.ok() ? wanted->text() : ""});
  if (!told.ok()) return told.status();
  auto target = place_of(*told);
  if (!target.ok()) return target;
  if (!leaving.peers_are_there()) return absl::DeadlineExceededError("this rank has given up");
  const auto there = gather_messages(peers, {leaving.reach(target->turn)});
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

void Leaving::expect_turn() {
  const std::lock_guard lock(mutex_);
  expects_turn_ = true;
}

void Leaving::expect_no_turn() {
  const std::lock_guard lock(mutex_);
  expects_turn_ = false;
  changed_.notify_all();
}

bool Leaving::begin_turn() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turns_ < turns_max_ || left_; });
  if (left_) return false;
  expects_turn_ = false;
  in_turn_ = true;
  return true;
}

void Leaving::end_turn() {
  const std::lock_guard lock(mutex_);
  in_turn_ = false;
  ++turns_;
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
  why_over_ = why;
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
  turns_max_ = turns_ + (in_turn_ ? 1 : 0);
  return turns_max_;
}

void Leaving::wait_for_turn() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !in_turn_ || over_; });
}

void Leaving::wait_for_expected_turn() {
  std::unique_lock lock(mutex_);
  turns_max_ = turns_ + (in_turn_ || expects_turn_ ? 1 : 0);
  changed_.notify_all();
  // Behind the turn that was expected the loop may expect the next one before this thread is awake.
  changed_.wait(lock,
                [&] { return over_ || (!in_turn_ && (turns_ >= turns_max_ || !expects_turn_)); });
}

void Leaving::wait_for_peers() {
  const std::lock_guard lock(mutex_);
  meeting_ = Meeting::kWaits;
}

bool Leaving::peers_are_there() {
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

absl::Status Leaving::reach(int64_t turn) {
  std::unique_lock lock(mutex_);
  turns_max_ = std::max(turns_max_, turn);
  changed_.notify_all();
  if (by_ == By::kSignalThread) changed_.wait(lock, [&] { return turns_ >= turn || over_; });
  if (turns_ >= turn) return absl::OkStatus();
  // Who has lost a peer is not to blame for it.
  const bool lost = absl::IsUnavailable(why_over_) || absl::IsDeadlineExceeded(why_over_);
  return absl::Status(
      lost ? why_over_.code() : absl::StatusCode::kFailedPrecondition,
      absl::StrCat("the step that it was about to complete has failed: ", why_over_.message()));
}

absl::StatusOr<bool> leave_together(CheckpointPeers* peers, Leaving& leaving, bool wants_save) {
  const Place mine{leaving.hold(), wants_save};
  if (peers == nullptr) {
    if (auto status = leaving.reach(mine.turn); !status.ok()) return status;
    return wants_save;
  }
  const auto target = meet(*peers, leaving, mine);
  leaving.wait_for_turn();
  if (!target.ok()) return target.status();
  return target->save;
}

}  // namespace muster::trainer

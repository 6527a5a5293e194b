// Leaving: the worker stops its ranks, reports their ends, and exits.
#include <algorithm>
#include <ranges>
#include <utility>

#include <absl/strings/str_cat.h>

#include "worker/core/core.h"

namespace muster::worker {
namespace {

constexpr const char* kWorkerLeaves = "its worker is leaving";

}  // namespace

void Core::on(const ShutdownRequested&, Instant now, ActionList& out) {
  const bool again = leaving_;
  begin_leaving(0, "leave requested", now, out);
  if (again) {
    coordinator_deadline_.reset();
    leave_by_ = std::min(leave_by_, now);
    stop_all(Duration::zero(), "leave requested twice", now, out);
  }
  leave_when_done(now, out);
}

void Core::begin_leaving(int code, const std::string& reason, Instant now, ActionList& out) {
  if (leaving_) return;
  leaving_ = true;
  exit_code_ = code;
  exit_reason_ = reason;
  leave_by_ = now + options_.leave_grace;
  if (link_ == Link::kRegistered) out.push_back(SendLeaving{grace_left(now)});
  // Only the coordinator can stop peers elsewhere, and a model cannot be saved without them. So the
  // coordinator also stops these ranks. If this worker signalled them first, a peer could exit with
  // code 75 before the coordinator has the reason, and an upgrade may restart the coordinator at
  // the same moment.
  const auto has_peers = [](const RankState& rank) {
    return rank.life != Life::kWaiting && !is_ending(rank) && rank.launch->spec.nodes > 1;
  };
  const auto theirs = std::ranges::count_if(ranks_ | std::views::values, has_peers);
  if (code != 0 || theirs == 0) return stop_all(grace_left(now), kWorkerLeaves, now, out);
  const Duration wait = wait_for_coordinator();
  coordinator_deadline_ = now + wait;
  out.push_back(Note{false, absl::StrCat("ranks with peers on other nodes: ", theirs,
                                         "; their coordinator stops them, or this worker in ",
                                         to_seconds(wait), " s")});
  stop_if([&](const RankState& rank) { return !has_peers(rank); }, grace_left(now), kWorkerLeaves,
          now, out);
}

void Core::stop_without_coordinator(Instant now, ActionList& out) {
  coordinator_deadline_.reset();
  const auto theirs = std::ranges::count_if(ranks_ | std::views::values,
                                            [](const RankState& rank) { return !is_ending(rank); });
  if (theirs == 0) return;
  out.push_back(Note{true, absl::StrCat("ranks that the coordinator has not stopped: ", theirs,
                                        "; they are stopped without their peers")});
  stop_all(grace_left(now), kWorkerLeaves, now, out);
}

Instant Core::leave_requested_at() const { return leave_by_ - options_.leave_grace; }

// Counts from leave_requested_at().
Duration Core::wait_for_coordinator() const {
  return std::min(options_.leave_grace / kCoordinatorWaitFraction,
                  link_ == Link::kRegistered ? kCoordinatorAnswerMax : kAbsentCoordinatorWaitMax);
}

Duration Core::grace_left(Instant now) const { return std::max(leave_by_ - now, Duration::zero()); }

void Core::leave_when_done(Instant now, ActionList& out) {
  if (!leaving_ || left_) return;
  if (!ranks_.empty() && now < leave_by_ + kLeaveWithout) return;
  const bool can_report = link_ == Link::kRegistered && !reports_.empty();
  if (can_report && !farewell_until_) farewell_until_ = now + options_.farewell_budget;
  if (can_report && !is_due(farewell_until_, now)) return;
  left_ = true;
  if (!ranks_.empty())
    out.push_back(
        Note{true, absl::StrCat("leaves ", ranks_.size(), " ranks that SIGKILL has not ended, ",
                                to_string(ranks_.begin()->first), " first")});
  out.push_back(Exit{exit_code_, exit_reason_});
}

}  // namespace muster::worker

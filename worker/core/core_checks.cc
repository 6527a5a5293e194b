// Node checks. A deep check runs on an idle node only: ranks end it, and wait until it is gone.
#include <utility>

#include "worker/core/core.h"

namespace muster::worker {
namespace {

// The maximum wait of ranks for the end of a deep check that was killed: above the time that the
// shell takes for it (StopDeepCheck).
constexpr Duration kCheckGoneWithin = std::chrono::seconds(5);

}  // namespace

// A check that is already running checks the same node.
void Core::on(const CheckNode& event, Instant, ActionList& out) {
  if (is_stale(event.epoch, "CheckNode", out)) return;
  if (event.deep) {
    stop_deep_check(out);
    deep_check_ = event;
    if (running_deep_check_ == 0) begin_deep_check(out);
    return;
  }
  check_ = event.check;
  if (!std::exchange(check_runs_, true)) out.push_back(RunNodeCheck{});
}

void Core::on(const NodeCheckDone& event, Instant, ActionList& out) {
  check_runs_ = false;
  const std::optional<uint64_t> check = std::exchange(check_, std::nullopt);
  if (!check || link_ != Link::kRegistered) return;
  out.push_back(
      SendNodeChecked{*check, event.passed, event.seconds, event.sentence, event.details});
}

void Core::begin_deep_check(ActionList& out) {
  if (!ranks_.empty() || leaving_) {
    SendNodeChecked refusal;
    refusal.check = deep_check_->check;
    refusal.sentence = leaving_ ? "the worker leaves" : "ranks need the node";
    refusal.deep.emplace().stopped = true;
    out.push_back(std::move(refusal));
    deep_check_.reset();
    return;
  }
  running_deep_check_ = deep_check_->check;
  out.push_back(RunDeepCheck{*deep_check_->deep});
}

// The check still runs until DeepCheckDone, whose result shows that it was stopped.
void Core::stop_deep_check(ActionList& out) {
  if (running_deep_check_ != 0) out.push_back(StopDeepCheck{});
}

// The coordinator no longer waits for the results.
void Core::forget_checks(ActionList& out) {
  check_.reset();
  deep_check_.reset();
  stop_deep_check(out);
}

// Ends the deep check, which uses all GPUs and CPUs, before ranks start.
void Core::yield_to_ranks(Instant now, ActionList& out) {
  if (running_deep_check_ == 0 || check_gone_by_) return;
  stop_deep_check(out);
  check_gone_by_ = now + kCheckGoneWithin;
}

// Starts the ranks although the deep check could not be killed, for instance because it waits for a
// file system.
void Core::spawn_beside_check(ActionList& out) {
  check_gone_by_.reset();
  out.push_back(Note{true,
                     "the deep check of this node was killed and has not ended; starting the "
                     "ranks that wait for its end"});
  spawn_ready(out);
}

void Core::on(const DeepCheckDone& event, Instant, ActionList& out) {
  const uint64_t ended = std::exchange(running_deep_check_, 0);
  if (std::exchange(check_gone_by_, std::nullopt)) spawn_ready(out);
  if (!deep_check_ || link_ != Link::kRegistered) return;
  if (deep_check_->check != ended) return begin_deep_check(out);
  deep_check_.reset();
  out.push_back(SendNodeChecked{ended, event.result.passed, event.result.seconds,
                                event.result.sentence, event.result.details, event.figures});
}

}  // namespace muster::worker

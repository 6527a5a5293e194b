#include "coordinator/shell/messages/account_messages.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "coordinator/core/accounting/ledger.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 6> kModeNames = {"queued",   "starting", "running",
                                                        "stopping", "waiting",  "ended"};
constexpr std::array<std::string_view, 6> kActivityNames = {"silent", "loading",    "stepping",
                                                            "saving", "evaluating", "leaving"};

// Returns the index of `name` in `names`; `otherwise` if it is not there.
template <size_t N>
size_t index_of(const std::array<std::string_view, N>& names, const std::string& name,
                size_t otherwise) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? otherwise : static_cast<size_t>(found - names.begin());
}

LossCause cause_from(const std::string& name) {
  for (size_t i = 0; i < kLossCauses; ++i) {
    if (loss_cause_name(static_cast<LossCause>(i)) == name) return static_cast<LossCause>(i);
  }
  return LossCause::kNone;
}

json table_to_json(const LossTable& table) {
  json list = json::array();
  for (size_t what = 0; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      const Duration time = table.time[what][cause];
      if (time == Duration::zero()) continue;
      list.push_back({{"what", std::string(kTimeClassNames[what])},
                      {"cause", std::string(loss_cause_name(static_cast<LossCause>(cause)))},
                      {"ns", time.count()}});
    }
  }
  return list;
}

LossTable table_from_json(const json& list) {
  LossTable table;
  for (const json& entry : list) {
    const auto what =
        static_cast<TimeClass>(index_of(kTimeClassNames, entry.value("what", std::string()),
                                        static_cast<size_t>(TimeClass::kWaiting)));
    const LossCause cause = what == TimeClass::kProductive
                                ? LossCause::kNone
                                : cause_from(entry.value("cause", std::string()));
    table.at(what, cause) += Duration(std::max<int64_t>(entry.value("ns", int64_t{0}), 0));
  }
  return table;
}

}  // namespace

void goodput_to_proto(const Account& account, v1::Goodput& proto) {
  const LossTable table = table_of(account);
  proto.Clear();
  proto.set_queued_ns(account.queued.count());
  proto.set_wall_ns(table.wall().count());
  proto.set_productive_ns(table.productive().count());
  for (size_t what = 1; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      const Duration time = table.time[what][cause];
      if (time <= Duration::zero()) continue;
      v1::Goodput::Loss& loss = *proto.add_losses();
      loss.set_cause(std::string(loss_cause_name(static_cast<LossCause>(cause))));
      loss.set_what(std::string(kTimeClassNames[what]));
      loss.set_ns(time.count());
    }
  }
  std::stable_sort(
      proto.mutable_losses()->begin(), proto.mutable_losses()->end(),
      [](const v1::Goodput::Loss& a, const v1::Goodput::Loss& b) { return a.ns() > b.ns(); });
}

json account_to_json(const Account& account) {
  return {{"mode", std::string(kModeNames[static_cast<size_t>(account.mode)])},
          {"activity", std::string(kActivityNames[static_cast<size_t>(account.activity)])},
          {"cause", std::string(loss_cause_name(account.cause))},
          {"settled", table_to_json(account.settled)},
          {"pending_ns", account.pending.count()},
          {"queued_ns", account.queued.count()},
          {"speaks", account.has_reported},
          {"mute", account.was_silent},
          {"best_step", account.best_step},
          {"step", account.step},
          {"stall_seconds", account.stall_seconds},
          {"checkpoint_step", account.checkpoint_step},
          {"checkpoint_unix_ns", account.checkpoint_unix_ns},
          {"saves", account.saves},
          {"unix_ns", account.unix_ns}};
}

Account account_from_json(const json& j) {
  Account account;
  account.mode =
      static_cast<Account::Mode>(index_of(kModeNames, j.value("mode", std::string()), 0));
  account.activity =
      static_cast<Account::Activity>(index_of(kActivityNames, j.value("activity", std::string()),
                                              static_cast<size_t>(Account::Activity::kLoading)));
  account.cause = cause_from(j.value("cause", std::string()));
  account.settled = table_from_json(j.value("settled", json::array()));
  account.pending = Duration(std::max<int64_t>(j.value("pending_ns", int64_t{0}), 0));
  account.queued = Duration(std::max<int64_t>(j.value("queued_ns", int64_t{0}), 0));
  account.has_reported = j.value("speaks", false);
  account.was_silent = j.value("mute", false);
  account.best_step = j.value("best_step", int64_t{-1});
  account.step = j.value("step", int64_t{-1});
  account.stall_seconds = j.value("stall_seconds", 0.0);
  account.checkpoint_step = j.value("checkpoint_step", int64_t{-1});
  account.checkpoint_unix_ns = j.value("checkpoint_unix_ns", int64_t{0});
  account.saves = j.value("saves", int64_t{-1});
  account.unix_ns = j.value("unix_ns", int64_t{0});
  return account;
}

void recovery_to_proto(const Recovery& recovery, v1::Recovery& proto) {
  proto.set_progress_unix_ns(recovery.at(RecoveryMoment::kProgress));
  proto.set_detected_unix_ns(recovery.at(RecoveryMoment::kDetected));
  proto.set_evidence_unix_ns(recovery.at(RecoveryMoment::kEvidence));
  proto.set_decided_unix_ns(recovery.at(RecoveryMoment::kDecided));
  proto.set_stopped_unix_ns(recovery.at(RecoveryMoment::kStopped));
  proto.set_started_unix_ns(recovery.at(RecoveryMoment::kStarted));
  proto.set_up_unix_ns(recovery.at(RecoveryMoment::kUp));
  proto.set_loaded_unix_ns(recovery.at(RecoveryMoment::kLoaded));
  proto.set_first_step_unix_ns(recovery.at(RecoveryMoment::kFirstStep));
  proto.set_caught_up_unix_ns(recovery.at(RecoveryMoment::kCaughtUp));
  proto.set_over(recovery.over);
  proto.set_attempts(recovery.attempts);
  proto.set_best_step(recovery.best_step);
  proto.set_restored_step(recovery.restored_step);
  proto.set_interrupted_by(recovery.interrupted_by.value());
}

Recovery recovery_from_proto(const v1::Recovery& proto) {
  Recovery recovery;
  recovery.unix_ns = {proto.progress_unix_ns(),   proto.detected_unix_ns(),
                      proto.evidence_unix_ns(),   proto.decided_unix_ns(),
                      proto.stopped_unix_ns(),    proto.started_unix_ns(),
                      proto.up_unix_ns(),         proto.loaded_unix_ns(),
                      proto.first_step_unix_ns(), proto.caught_up_unix_ns()};
  recovery.over = proto.over();
  recovery.attempts = proto.attempts();
  recovery.best_step = proto.best_step();
  recovery.restored_step = proto.restored_step();
  recovery.interrupted_by = IncidentId(proto.interrupted_by());
  return recovery;
}

}  // namespace muster::coordinator

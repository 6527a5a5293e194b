#include "tests/simulation/describe.h"

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: the visitors below name a dozen of its types

std::string launch_text(JobId job, Attempt attempt) {
  return absl::StrCat(job.value(), "/", attempt.value());
}

std::string life_text(const WorkerName& worker, Incarnation incarnation) {
  return absl::StrCat(worker.value(), "#", incarnation.value());
}

struct EventText {
  std::string operator()(const JobSubmitted& e) const {
    return absl::StrCat("submit ", e.spec.nodes, "x", e.spec.ranks_per_node, " request ",
                        e.request_id);
  }
  std::string operator()(const JobCancelRequested& e) const {
    return absl::StrCat("cancel ", e.job.value(), e.force ? " by force" : "");
  }
  std::string operator()(const JobCheckpointRequested& e) const {
    return absl::StrCat("checkpoint ", e.job.value());
  }
  std::string operator()(const JobUpdateRequested& e) const {
    return absl::StrCat(e.withdraws ? "withdraw the update of " : "update ", e.job.value(), ": ",
                        e.change);
  }
  std::string operator()(const StacksRequested& e) const {
    return absl::StrCat("stacks ", e.job.value());
  }
  std::string operator()(const StackReportReceived& e) const {
    return absl::StrCat("stack report ", life_text(e.worker, e.incarnation), " ",
                        launch_text(e.job, e.attempt), " dump ", e.dump.value(), " sample ",
                        e.sample);
  }
  std::string operator()(const SymbolsReceived& e) const {
    return absl::StrCat("symbols ", life_text(e.worker, e.incarnation), " dump ", e.dump.value(),
                        ": ", e.symbols.size());
  }
  std::string operator()(const WorkerRegistered& e) const {
    std::string text = absl::StrCat("register ", life_text(e.worker, e.incarnation), " running");
    for (const RunningRank& r : e.running) {
      absl::StrAppend(&text, " ", launch_text(r.job, r.attempt), ":", r.rank.value(),
                      r.pid == 0 ? "?" : "");
    }
    if (e.leaving) absl::StrAppend(&text, ", leaving within ", to_seconds(*e.leaving));
    return text;
  }
  std::string operator()(const WorkerDisconnected& e) const {
    return absl::StrCat("disconnect ", life_text(e.worker, e.incarnation));
  }
  std::string operator()(const WorkerLeaving& e) const {
    return absl::StrCat("leaving ", life_text(e.worker, e.incarnation), " within ",
                        to_seconds(e.grace));
  }
  std::string operator()(const HeartbeatReceived& e) const {
    std::string text = absl::StrCat("heartbeat ", life_text(e.worker, e.incarnation));
    for (const RankProgress& r : e.ranks) {
      absl::StrAppend(&text, " ", launch_text(r.job, r.attempt), ":", r.rank.value(), "@", r.step);
    }
    return text;
  }
  std::string operator()(const RankExited& e) const {
    return absl::StrCat("exit ", life_text(e.worker, e.incarnation), " ",
                        launch_text(e.job, e.attempt), ":", e.rank.value(), " code ", e.exit_code,
                        " signal ", e.signal, " (", e.detail, ")");
  }
  std::string operator()(const NodeChecked& e) const {
    return absl::StrCat("checked ", life_text(e.worker, e.incarnation), " #", e.check, " ",
                        e.result.passed ? "passed" : "failed");
  }
  std::string operator()(const NodeExcludeRequested& e) const {
    return absl::StrCat(e.drain_unix_ns != 0 ? "drain " : "exclude ", e.worker.value(), ": ",
                        e.reason);
  }
  std::string operator()(const NodeAdmitRequested& e) const {
    return absl::StrCat("admit ", e.worker.value());
  }
  std::string operator()(const QueuePolicyChanged&) const { return "queue policy"; }
  std::string operator()(const NodeSweepRequested& e) const {
    return absl::StrCat("check deeply, ", e.workers.size(), " nodes");
  }
  std::string operator()(const Tick& e) const {
    std::string text = e.is_behind ? "tick, behind" : "tick";
    for (const WorkerName& name : e.unread) absl::StrAppend(&text, ", unread: ", name.value());
    return text;
  }
};

struct PayloadText {
  std::string operator()(const SendRegistered&) const { return "registered"; }
  std::string operator()(const SendPace& p) const {
    return absl::StrCat("pace ", to_seconds(p.busy_interval), " s");
  }
  std::string operator()(const SendStartRanks& p) const {
    return absl::StrCat("start ", launch_text(p.job, p.attempt), " ranks ",
                        p.ranks.front().rank.value(), "-", p.ranks.back().rank.value(), " at ",
                        p.rendezvous_address);
  }
  std::string operator()(const SendStopRanks& p) const {
    return absl::StrCat("stop ", launch_text(p.job, p.attempt), " grace ", to_seconds(p.grace),
                        " (", p.reason, ")");
  }
  std::string operator()(const SendSaveCheckpoint& p) const {
    return absl::StrCat("save ", launch_text(p.job, p.attempt), " rank ", p.rank.value());
  }
  std::string operator()(const SendDumpStacks& p) const {
    return absl::StrCat("dump ", p.dump.value(), " of ", launch_text(p.job, p.attempt), ", ",
                        p.ranks.size(), " ranks");
  }
  std::string operator()(const SendSymbolize& p) const {
    return absl::StrCat("symbolize ", p.addresses.size(), " of ", p.module.path);
  }
  std::string operator()(const SendCheckNode& p) const { return absl::StrCat("check #", p.check); }
  std::string operator()(const SendJobEnded& p) const {
    return absl::StrCat("ended ", p.job.value());
  }
  std::string operator()(const SendReportAck& p) const { return absl::StrCat("ack ", p.report_id); }
};

struct ActionText {
  std::string operator()(const PersistJob& a) const {
    return absl::StrCat("persist ", a.job.value(), " ", av(job_state_name(a.state)), ": ",
                        a.reason);
  }
  std::string operator()(const PersistExit& a) const {
    return absl::StrCat("persist exit ", a.position, " of ", a.job.value(), "/", a.attempt.value(),
                        ": rank ", a.exit.rank.value());
  }
  std::string operator()(const PersistRequestId& a) const {
    return absl::StrCat("persist request ", a.request_id, " = ", a.job.value());
  }
  std::string operator()(const PersistLastJobId& a) const {
    return absl::StrCat("persist last job ", a.job.value());
  }
  std::string operator()(const ForgetJob& a) const {
    return absl::StrCat("forget ", a.job.value());
  }
  std::string operator()(const PersistIncident& a) const {
    return absl::StrCat("persist incident ", a.incident.id.value(), " of ",
                        launch_text(a.incident.job, a.incident.attempt), ": ", a.incident.sentence);
  }
  std::string operator()(const ForgetIncident& a) const {
    return absl::StrCat("forget incident ", a.incident.value());
  }
  std::string operator()(const PersistDeepChecks& a) const {
    return absl::StrCat("persist ", a.checks.size(), " deep checks of ", a.worker.value());
  }
  std::string operator()(const PersistNode& a) const {
    const NodeRecord& n = a.node;
    return absl::StrCat("persist node ", n.worker.value(), n.excluded ? " excluded " : " ",
                        n.until_unix_ns, n.check_due ? " to be checked: " : ": ", n.reason);
  }
  std::string operator()(const ForgetNode& a) const {
    return absl::StrCat("forget node ", a.worker.value());
  }
  std::string operator()(const PersistUsage& a) const {
    return absl::StrCat("persist the usage of ", text_of(a.usage.party), ": ",
                        a.usage.rank_seconds);
  }
  std::string operator()(const PersistQueuePolicy&) const { return "persist the queue policy"; }
  std::string operator()(const PersistAttempt& a) const {
    const AttemptRecord& r = a.attempt;
    return absl::StrCat("persist end of ", launch_text(r.job, r.attempt), ", steps ", r.first_step,
                        " to ", r.last_step, ": ", r.end);
  }
  std::string operator()(const NodeDecision& a) const {
    return absl::StrCat("node change: ", a.worker.value(), " ", a.text);
  }
  std::string operator()(const SendToWorker& a) const {
    return absl::StrCat("to ", life_text(a.worker, a.incarnation), ": ",
                        std::visit(PayloadText{}, a.payload));
  }
  std::string operator()(const RefuseWorker& a) const {
    return absl::StrCat("refuse ", life_text(a.worker, a.incarnation), ": ", a.status.message());
  }
  std::string operator()(const RefuseRegistration& a) const {
    return absl::StrCat("refuse the registration of ", a.worker.value(), ": ", a.status.message());
  }
  std::string operator()(const Reply& a) const {
    return absl::StrCat("reply ", a.token.value(), " job ", a.job.value(), " ",
                        a.status.ToString());
  }
  std::string operator()(const ReplyStacks& a) const {
    return absl::StrCat("reply stacks ", a.token.value(), " ", a.status.ToString());
  }
  std::string operator()(const JobChanged& a) const {
    return absl::StrCat("changed ", a.job.value());
  }
};

}  // namespace

std::string describe(const Event& event) { return std::visit(EventText{}, event); }
std::string describe(const Action& action) { return std::visit(ActionText{}, action); }

}  // namespace muster::simulation

// Training, stacks and incidents in scenarios.
#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {
namespace {

Duration seconds_of(const std::vector<std::string>& words, const std::string& key,
                    double otherwise) {
  return Duration(std::llround(number_of(words, key, otherwise) * 1e9));
}

ThreadStack main_thread(std::vector<std::string> calls) {
  ThreadStack stack;
  stack.name = "main";
  for (std::string& call : calls) stack.frames.push_back({kNoModule, 0, std::move(call)});
  return stack;
}

}  // namespace

// `steps N every S [from N] [slow R by F] [communication S] [data S] [stall S] [saving]`: completes
// N steps, reported four times a second. `from`: resumes from a checkpoint of that step. `slow`:
// rank R takes F times as long, and the others wait. `communication`, `data`: seconds of each step
// in which all ranks wait. `stall`: seconds of checkpoints per step, beside it. `saving`: a save is
// written in the background.
void Scenario::train(const Words& words) {
  const JobId id(std::stoull(words[1]));
  FakeTraining& training = trainings_[id];
  if (const auto from = value_of(words, "from")) {
    training = FakeTraining{};
    training.step = std::stoll(*from);
  }
  training.step_time = seconds_of(words, "every", 0.5);
  training.phase = Phase::kStep;
  const int32_t slow = number_of(words, "slow", -1);
  const double factor = slow < 0 ? 1 : number_of(words, "by", 1.0);
  const double communication = number_of(words, "communication", 0.0);
  const double data = number_of(words, "data", 0.0), stall = number_of(words, "stall", 0.0);
  training.saves = std::find(words.begin(), words.end(), "saving") != words.end();
  const auto steps = number_of<int64_t>(words, "steps", 1);
  for (int64_t i = 0; i < steps; ++i) {
    const auto step =
        Duration(std::llround(static_cast<double>(training.step_time.count()) * factor));
    for (Duration done{}; done < step;) {
      const Duration part = std::min<Duration>(std::chrono::milliseconds(250), step - done);
      wait(part);
      done += part;
    }
    const Job job = core_->jobs().at(id);
    ++training.step;
    training.phase_start = now_;
    for (const RankPlacement& rank : job.placement) {
      training.times[rank.rank.value()].add(to_seconds(step));
      double& waited = training.waited[rank.rank.value()];
      waited += communication;
      if (rank.rank.value() != slow) waited += to_seconds(step - training.step_time);
    }
    training.waited_data += data;
    training.stalled += stall;
    heartbeat_training(job, training);
  }
}

void Scenario::enter_phase(const Words& words) {
  const JobId id(std::stoull(words[1]));
  FakeTraining& training = trainings_[id];
  const auto name = std::find(kPhaseNames.begin(), kPhaseNames.end(), words[2]);
  training.phase = static_cast<Phase>(name - kPhaseNames.begin());
  training.phase_start = now_;
  training.stopped = number_of(words, "stopped", -1);
  heartbeat_training(core_->jobs().at(id), training);
}

void Scenario::heartbeat_training(const Job& job, FakeTraining& training) {
  std::map<WorkerName, HeartbeatReceived> heartbeats;
  for (const RankPlacement& rank : job.placement) {
    const FakeWorker& worker = workers_[rank.worker];
    if (!worker.connected || worker.silent) continue;
    HeartbeatReceived& heartbeat = heartbeats[rank.worker];
    heartbeat.worker = rank.worker;
    heartbeat.incarnation = rank.incarnation;
    heartbeat.unix_ns = unix_ns_;
    RankProgress& figures = heartbeat.ranks.emplace_back();
    figures.job = job.id;
    figures.attempt = job.attempt;
    figures.rank = rank.rank;
    figures.pid = 1000 + rank.rank.value();
    figures.phase = training.phase;
    figures.phase_age = now_ - training.phase_start;
    figures.step = training.step;
    figures.step_seconds = to_seconds(training.step_time);
    figures.step_times = training.times[rank.rank.value()];
    figures.collective_wait_seconds = training.waited[rank.rank.value()];
    figures.data_wait_seconds = training.waited_data;
    figures.checkpoints.stall_seconds = training.stalled;
    figures.checkpoints.saving_mib = training.saves ? 100 : 0;
    figures.process_state = rank.rank.value() == training.stopped ? 'T' : 'S';
  }
  for (const auto& [name, heartbeat] : heartbeats) step(heartbeat);
}

// Reports one sample that the coordinator requested from NAME, in which all its ranks wait in one
// collective. Ranks `behind` have not entered the collective: they wait for a lock, are `stopped`,
// or compute (`moving`). `on`: the collective was completed meanwhile. `mute` ranks have no pages.
// `idle`: no process uses CPU time. `child N`: a child process of the ranks `behind` is stopped.
std::string Scenario::report_stacks(const Words& words) {
  const WorkerName name(words[1]);
  const auto requested = dumps_.find(name);
  if (requested == dumps_.end())
    return absl::StrCat(name.value(), " received no request for stacks");
  StackReportReceived report;
  report.worker = name;
  report.incarnation = workers_[name].incarnation;
  report.dump = requested->second.dump;
  report.job = requested->second.job;
  report.attempt = requested->second.attempt;
  report.sample = number_of(words, "sample", 0);
  report.unix_ns = unix_ns_;
  const bool moving = std::find(words.begin(), words.end(), "moving") != words.end();
  const bool stopped = std::find(words.begin(), words.end(), "stopped") != words.end();
  const bool on = std::find(words.begin(), words.end(), "on") != words.end();
  const bool has_no_page = std::find(words.begin(), words.end(), "mute") != words.end();
  const bool idle = std::find(words.begin(), words.end(), "idle") != words.end();
  const auto child = number_of(words, "child", 0);
  const auto behind = value_of(words, "behind");
  const auto [first, last] = behind ? range_of(*behind) : std::pair(-1, -1);
  StackSample sample;
  const auto seq = static_cast<uint64_t>(on ? 41 + report.sample : 41);
  for (const Rank rank : requested->second.ranks) {
    const bool late = rank.value() >= first && rank.value() <= last;
    RankEvidence& evidence = report.ranks.emplace_back();
    evidence.rank = rank.value();
    evidence.pid = 1000 + rank.value();
    if (has_no_page) evidence.page_problem = "it has no progress page";
    evidence.phase = trainings_[report.job].phase;
    evidence.step = trainings_[report.job].step;
    evidence.process_state = late && stopped ? 'T' : 'S';
    evidence.activity.is_known = idle || child > 0;
    if (late && child > 0) {
      evidence.activity.stopped_pid = child;
      evidence.activity.stopped_name = "loader";
    }
    const auto members = static_cast<uint32_t>(core_->jobs().at(report.job).placement.size());
    GroupEvidence group;
    group.name = "data";
    group.members = members;
    group.enqueued = group.started = late ? seq - 1 : seq;
    group.completed = seq - 1;
    group.kind = CollectiveKind::kAllReduce;
    group.collective = "grads";
    if (!has_no_page) evidence.groups.push_back(group);
    RankStacks& stacks = sample.ranks.emplace_back();
    stacks.rank = rank.value();
    const std::string where = moving ? absl::StrCat("layer ", report.sample) : "lock";
    stacks.threads.push_back(late ? main_thread({"main", "step", where, "leaf"})
                                  : main_thread({"main", "step", "all_reduce", "poll"}));
  }
  report.stacks.add(sample);
  step(report);
  return "";
}

void Scenario::note_payload(const WorkerName& worker, const WorkerPayload& payload) {
  if (const auto* dump = std::get_if<SendDumpStacks>(&payload)) {
    dumps_[worker] = *dump;
    const std::string where =
        absl::StrCat(worker.value(), " ", dump->job.value(), "/", dump->attempt.value());
    if (dump->samples == 1 && !requests_stacks_)
      probes_.insert(where);
    else
      decisions_.push_back(absl::StrCat("dump ", where, " samples ", dump->samples));
  } else if (const auto* symbolize = std::get_if<SendSymbolize>(&payload)) {
    decisions_.push_back(absl::StrCat("symbolize ", worker.value(), " ", symbolize->module.path));
  } else if (const auto* check = std::get_if<SendCheckNode>(&payload)) {
    note_check(worker, check->check);
  } else if (const auto* ended = std::get_if<SendJobEnded>(&payload)) {
    received_ends_.insert(absl::StrCat(worker.value(), " ", ended->job.value()));
  } else if (const auto* registered = std::get_if<SendRegistered>(&payload)) {
    unfinished_[worker] =
        absl::StrJoin(registered->unfinished, ",",
                      [](std::string* out, JobId id) { absl::StrAppend(out, id.value()); });
  }
}

// expect ended NAME JOB | expect unfinished NAME [JOB,…]
std::string Scenario::expect_copies(const Words& words) const {
  if (words[1] == "ended")
    return received_ends_.contains(absl::StrCat(words.at(2), " ", words.at(3)))
               ? ""
               : "it received no such message";
  const auto received = unfinished_.find(WorkerName(words.at(2)));
  const std::string jobs = received == unfinished_.end() ? "nothing" : received->second;
  return jobs == (words.size() > 3 ? words[3] : "") ? "" : absl::StrCat("it received ", jobs);
}

// expect incidents N | expect incident N KIND open|closed ["part of its sentence, suspects' names
// or last moment"]
std::string Scenario::expect_incident(const Words& words) const {
  if (words[1] == "incidents") {
    return absl::StrCat(stored_incidents_.size()) == words.at(2)
               ? ""
               : absl::StrCat("there are ", stored_incidents_.size());
  }
  const auto found = stored_incidents_.find(IncidentId(std::stoull(words.at(2))));
  if (found == stored_incidents_.end()) return "there is no such incident";
  const Incident& incident = found->second;
  std::string text = absl::StrCat(av(kIncidentKindNames[static_cast<size_t>(incident.kind)]),
                                  incident.open ? " open" : " closed", ": ", incident.sentence,
                                  " | ", incident.action, " | ", incident.diagnosis);
  for (const Suspect& suspect : incident.suspects)
    absl::StrAppend(&text, " | suspect ", suspect.rank.value(), " on ", suspect.worker.value());
  for (const IncidentMoment& moment : incident.moments) absl::StrAppend(&text, " | ", moment.text);
  const std::string wanted = absl::StrCat(words.at(3), " ", words.at(4), ":");
  for (size_t i = 5; i < words.size(); ++i) {
    if (text.find(words[i]) == std::string::npos) return absl::StrCat("it is ", text);
  }
  return text.rfind(wanted, 0) == 0 ? "" : absl::StrCat("it is ", text);
}

// expect recovery N "part" …
std::string Scenario::expect_recovery(const Words& words) const {
  const auto found = stored_incidents_.find(IncidentId(std::stoull(words.at(2))));
  if (found == stored_incidents_.end()) return "there is no such incident";
  if (!found->second.recovery) return words.at(3) == "none" ? "" : "it has none";
  const Recovery& recovery = *found->second.recovery;
  std::string text = recovery.over ? "over" : "continues";
  for (size_t i = 0; i < kRecoveryMoments; ++i) {
    if (recovery.unix_ns[i] == 0) continue;
    const double after = static_cast<double>(recovery.unix_ns[i] - recovery.unix_ns[0]) / 1e9;
    absl::StrAppend(&text, ", ", av(kRecoveryMomentNames[i]), absl::StrFormat(" %.2f", after));
  }
  absl::StrAppend(&text, ", from step ", recovery.restored_step, ", lost ", recovery.steps_lost(),
                  ", attempts ", recovery.attempts, ", interrupted by ",
                  recovery.interrupted_by.value());
  for (size_t i = 3; i < words.size(); ++i) {
    if (text.find(words[i]) == std::string::npos) return absl::StrCat("it is ", text);
  }
  return "";
}

// expect time JOB CLASS CAUSE SECONDS, to a hundredth. Also checks that all times add up.
std::string Scenario::expect_time(const Job& job, const Words& words) const {
  const LossTable table = table_of(core_->account_of(job, now_));
  std::string text;
  double found = 0;
  for (size_t what = 0; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      const Duration time = table.time[what][cause];
      const std::string_view name = loss_cause_name(static_cast<LossCause>(cause));
      if (time != Duration::zero())
        absl::StrAppend(&text, av(kTimeClassNames[what]), " ", av(name),
                        absl::StrFormat(" %.2f; ", to_seconds(time)));
      if (kTimeClassNames[what] == words.at(3) && name == words.at(4)) found = to_seconds(time);
    }
  }
  return std::abs(found - std::stod(words.at(5))) < 0.005 ? "" : absl::StrCat("it is ", text);
}

// expect stacks OK [ranks N] [silent N] | expect stacks CODE ["part of the message"]
std::string Scenario::expect_stacks(const Words& words) const {
  if (!last_stacks_) return words.at(2) == "none" ? "" : "there was no answer";
  const std::string got =
      absl::StrCat(av(absl::StatusCodeToString(last_stacks_->status.code())), " ranks ",
                   last_stacks_->dump.ranks.size(), " silent ", last_stacks_->dump.silent.size(),
                   " ", last_stacks_->status.message());
  std::string wanted = words.at(2);
  for (size_t i = 3; i < words.size(); ++i) absl::StrAppend(&wanted, " ", words[i]);
  const bool good = last_stacks_->status.ok()
                        ? got.rfind(wanted, 0) == 0
                        : got.rfind(words.at(2), 0) == 0 &&
                              (words.size() < 4 || got.find(words[3]) != std::string::npos);
  return good ? "" : absl::StrCat("instead: ", got);
}

}  // namespace muster::coordinator

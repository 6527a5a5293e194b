#include "tests/scenarios/scenario.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "coordinator/core/records/sizes.h"
#include "tests/scenarios/job_words.h"
#include "tests/scenarios/sizes.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

Duration seconds_of(const std::string& text) {
  return Duration(std::llround(std::stod(text) * 1e9));
}

std::string refusal_text(const WorkerName& worker, const absl::Status& status) {
  return absl::StrCat("refuse ", worker.value(), " ", absl::StatusCodeToString(status.code()), " ",
                      status.message());
}

std::string range_text(const std::vector<RankPlacement>& ranks) {
  if (ranks.empty()) return "none";
  const int32_t first = ranks.front().rank.value();
  const int32_t last = ranks.back().rank.value();
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

}  // namespace

Scenario::Scenario() {
  options_.version = "1.0";
  options_.finished_jobs_max = 5;
  options_.queued_jobs_max = 8;
  now_ = instant_from_ns(kNsPerSecond);
  core_.emplace(options_, DurableState{}, now_);
}

std::string Scenario::run(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::StrCat("cannot read ", path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const Words words = split_words(line);
    if (words.empty()) continue;
    const std::string problem = run_line(words);
    if (!problem.empty()) return absl::StrCat(path, ":", number, ": ", line, "\n  ", problem);
  }
  return unexpected();
}

std::string Scenario::run_line(const Words& words) {
  if (words[0] == "expect") return expect(words);
  if (std::string left = unexpected(); !left.empty()) return left;
  last_reply_.reset();
  last_stacks_.reset();
  last_ack_.clear();
  probes_.clear();
  received_ends_.clear();
  return run_event(words);
}

std::string Scenario::unexpected() const {
  return decisions_.empty() ? "" : absl::StrCat("not expected: ", absl::StrJoin(decisions_, "; "));
}

std::string Scenario::run_event(const Words& words) {
  const std::string& verb = words[0];
  if (verb == "worker") {
    add_worker(words);
  } else if (verb == "disconnect") {
    FakeWorker& worker = workers_[WorkerName(words[1])];
    worker.connected = false;
    step(WorkerDisconnected{WorkerName(words[1]), worker.incarnation, unix_ns_});
  } else if (verb == "leaving") {
    const WorkerName name(words[1]);
    const Incarnation life(
        number_of<uint64_t>(words, "incarnation", workers_[name].incarnation.value()));
    step(WorkerLeaving{name, life, seconds_of(words.at(2)), unix_ns_});
  } else if (verb == "silence") {
    workers_[WorkerName(words[1])].silent = true;
  } else if (verb == "speak") {
    workers_[WorkerName(words[1])].silent = false;
  } else if (verb == "submit") {
    return submit(words);
  } else if (verb == "cancel") {
    step(JobCancelRequested{RequestToken(next_token_++), JobId(std::stoull(words[1])),
                            words.back() == "force", unix_ns_});
  } else if (verb == "policy") {
    set_policy(words);
  } else if (verb == "update") {
    return update(words);
  } else if (verb == "checkpoint") {
    step(JobCheckpointRequested{RequestToken(next_token_++), JobId(std::stoull(words[1])),
                                unix_ns_});
  } else if (verb == "up" || verb == "progress") {
    progress(words);
  } else if (verb == "train") {
    train(words);
  } else if (verb == "phase") {
    enter_phase(words);
  } else if (verb == "report") {
    return report_stacks(words);
  } else if (verb == "stacks") {
    requests_stacks_ = true;
    step(StacksRequested{RequestToken(next_token_++), JobId(std::stoull(words[1])),
                         Rank(number_of(words, "rank", -1)), unix_ns_, words.back() == "dumps"});
    requests_stacks_ = false;
  } else if (verb == "exit") {
    report_exit(words);
  } else if (verb == "wait") {
    wait(seconds_of(words[1]), words.back() == "behind");
  } else if (verb == "coordinator" && words[1] == "stalls") {
    stall(seconds_of(words.at(2)));
  } else if (verb == "coordinator") {
    restart_coordinator();
  } else if (!run_node_event(words)) {
    return absl::StrCat("no such event: ", verb);
  }
  return "";
}

void Scenario::add_worker(const Words& words) {
  const WorkerName name(words[1]);
  WorkerRegistered event;
  event.worker = name;
  event.incarnation = Incarnation(number_of<uint64_t>(words, "incarnation", 1));
  event.version = value_of(words, "version").value_or(options_.version);
  event.host = value_of(words, "host").value_or("host-of-" + words[1]);
  event.slots = number_of(words, "slots", 4);
  event.place = {.switches = value_of(words, "switches").value_or(""),
                 .domain = value_of(words, "domain").value_or("")};
  event.labels = labels_of(words);
  event.no_gpus_because = value_of(words, "no-gpus").value_or("");
  for (int32_t i = 0; i < number_of(words, "gpus", 0); ++i)
    event.gpus.push_back({.index = i, .uuid = absl::StrCat("GPU-", i), .name = "fake"});
  event.rendezvous_address = words[1] + ":1234";
  event.program_ports = {12'000, number_of(words, "ports", 0)};
  event.store = StoreId(number_of<uint64_t>(words, "store", 0));
  if (const auto grace = value_of(words, "leaving")) event.leaving = seconds_of(*grace);
  event.unix_ns = unix_ns_;
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    if (colon == std::string::npos) continue;
    const auto [job, attempt] = launch_of(word.substr(0, colon));
    const auto [first, last] = range_of(word.substr(colon + 1));
    for (int32_t rank = first; rank <= last; ++rank) {
      event.running.push_back({job, attempt, Rank(rank), 1000 + rank});
    }
  }
  step(event);
  const auto it = core_->workers().find(name);
  if (it == core_->workers().end() || it->second.incarnation != event.incarnation) return;
  workers_[name] = {event.incarnation, event.slots, true, false};
}

std::string Scenario::submit(const Words& all_words) {
  JobSpec spec;
  Words words = all_words;
  take_queue_words(words, spec);
  spec.name = words[1];
  spec.user = "ada";
  spec.nodes = number_of(words, "nodes", 1);
  spec.ranks_per_node = number_of(words, "ranks", 4);
  spec.priority = number_of(words, "priority", 0);
  spec.gpus_per_rank = number_of(words, "gpus", 0);
  spec.restarts_max = number_of(words, "restarts", 0);
  spec.output_directory = value_of(words, "output").value_or(absl::StrCat("/out/", next_token_));
  if (std::find(words.begin(), words.end(), "program") != words.end()) {
    spec.command = {"train.py"};
    spec.working_directory = "/home/ada";
  }
  add_sizes(words, spec);
  for (const std::string& word : words) {
    if (word.find('=') != std::string::npos && !set_job_field(word, spec))
      return absl::StrCat("no such field: ", word);
  }
  step(JobSubmitted{RequestToken(next_token_++), value_of(words, "request").value_or(""), spec,
                    unix_ns_});
  return "";
}

void Scenario::progress(const Words& words) {
  const JobId id(std::stoull(words[1]));
  const Job job = core_->jobs().at(id);
  const int32_t only = number_of(words, "rank", -1);
  std::map<WorkerName, HeartbeatReceived> heartbeats;
  for (const RankPlacement& rank : job.placement) {
    if (only >= 0 && rank.rank.value() != only) continue;
    HeartbeatReceived& heartbeat = heartbeats[rank.worker];
    heartbeat.worker = rank.worker;
    heartbeat.incarnation = rank.incarnation;
    heartbeat.unix_ns = unix_ns_;
    RankProgress figures;
    figures.job = id;
    figures.attempt = job.attempt;
    figures.rank = rank.rank;
    figures.pid = 1000 + rank.rank.value();
    figures.step = number_of<int64_t>(words, "step", -1);
    figures.checkpoint_step = number_of<int64_t>(words, "saved", -1);
    figures.process_state = value_of(words, "state").value_or("?").front();
    figures.checkpoints.on_request = figures.step >= 0 ? 1 : 0;
    if (const auto node = value_of(words, "unanswered")) {
      const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
      if (state.step == figures.step)
        figures.phase_age = figures.last_progress_age = now_ - state.last_progress;
      figures.stalled_links.push_back(
          {*node, 4711, words.back() == "connecting", number_of(words, "repeated", 3)});
    }
    heartbeat.ranks.push_back(figures);
  }
  for (const auto& [name, heartbeat] : heartbeats) step(heartbeat);
}

void Scenario::report_exit(const Words& words) {
  const auto [id, attempt] = launch_of(words[1]);
  RankExited event;
  event.job = id;
  event.attempt = attempt;
  event.rank = Rank(number_of(words, "rank", 0));
  event.signal = number_of(words, "signal", 0);
  event.exit_code = event.signal > 0 ? -1 : number_of(words, "code", 0);
  event.last_step = number_of<int64_t>(words, "step", -1);
  event.detail = value_of(words, "detail").value_or("");
  if (words.back() == "oom") event.cause = ExitCause::kOutOfMemory;
  if (words.back() == "gpu") event.cause = ExitCause::kGpuFault;
  if (words.back() == "node") event.cause = ExitCause::kNodeFault;
  event.stop_ordered = words.back() == "told";
  event.lost_link = value_of(words, "lost-link").value_or("");
  event.link_is_down = words.back() == "down";
  event.report_id = next_report_++;
  event.unix_ns = unix_ns_;
  if (const auto from = value_of(words, "from")) {
    event.worker = WorkerName(*from);
  } else {
    event.worker =
        core_->jobs().at(id).placement.at(static_cast<size_t>(event.rank.value())).worker;
  }
  event.incarnation = Incarnation(
      number_of<uint64_t>(words, "incarnation", workers_[event.worker].incarnation.value()));
  step(event);
}

void Scenario::wait(Duration time, bool is_behind) {
  const Instant end = now_ + time;
  while (now_ < end) {
    Instant next = std::min(end, now_ + options_.heartbeat_interval);
    const auto deadline = core_->next_deadline();
    if (deadline && *deadline > now_) next = std::min(next, *deadline);
    unix_ns_ += (next - now_).count();
    now_ = next;
    for (const auto& [name, worker] : workers_) {
      if (worker.connected && !worker.silent) {
        step(HeartbeatReceived{name, worker.incarnation, {}, unix_ns_});
      }
    }
    step(Tick{unix_ns_, {}, is_behind});
    if (const auto left = core_->next_deadline(); left && *left <= now_) {
      decisions_.push_back("to be woken at once, for ever");
      return;
    }
  }
}

void Scenario::stall(Duration time) {
  now_ += time;
  unix_ns_ += time.count();
  step(Tick{unix_ns_});
}

void Scenario::restart_coordinator() {
  DurableState state;
  for (const auto& [id, job] : stored_jobs_) state.jobs.push_back(job);
  state.request_ids = stored_requests_;
  state.last_job_id = stored_last_job_id_;
  for (const auto& [id, incident] : stored_incidents_) {
    state.incidents.push_back(id);
    if (is_unfinished(incident)) state.open_incidents.push_back(incident);
  }
  for (const auto& [name, node] : stored_nodes_) state.nodes.push_back(node);
  for (const auto& [party, usage] : stored_usages_) state.usages.push_back(usage);
  for (auto& [name, worker] : workers_) worker.connected = false;
  core_.emplace(options_, std::move(state), now_);
}

void Scenario::step(const Event& event) {
  ActionList actions;
  core_->step(event, now_, actions);
  for (const Action& action : actions) {
    if (const auto* persist = std::get_if<PersistJob>(&action)) {
      stored_jobs_[persist->job] = durable(core_->jobs().at(persist->job));
    } else if (const auto* exit = std::get_if<PersistExit>(&action)) {
      std::vector<RankExit>& exits = stored_jobs_.at(exit->job).exits;
      if (exit->position == exits.size()) exits.push_back(exit->exit);
    } else if (const auto* request = std::get_if<PersistRequestId>(&action)) {
      stored_requests_[request->request_id] = request->job;
    } else if (const auto* last = std::get_if<PersistLastJobId>(&action)) {
      stored_last_job_id_ = last->job;
    } else if (const auto* forget = std::get_if<ForgetJob>(&action)) {
      stored_jobs_.erase(forget->job);
      std::erase_if(stored_requests_, [&](const auto& e) { return e.second == forget->job; });
    } else if (const auto* incident = std::get_if<PersistIncident>(&action)) {
      stored_incidents_[incident->incident.id] = incident->incident;
    } else if (const auto* old = std::get_if<ForgetIncident>(&action)) {
      stored_incidents_.erase(old->incident);
    } else if (const auto* node = std::get_if<PersistNode>(&action)) {
      stored_nodes_[node->node.worker] = node->node;
    } else if (const auto* sound = std::get_if<ForgetNode>(&action)) {
      stored_nodes_.erase(sound->worker);
    } else if (const auto* usage = std::get_if<PersistUsage>(&action)) {
      stored_usages_[usage->usage.party] = usage->usage;
    } else if (const auto* stacks = std::get_if<ReplyStacks>(&action)) {
      last_stacks_ = *stacks;
    } else if (const auto* reply = std::get_if<Reply>(&action)) {
      last_reply_ = *reply;
    } else if (const auto* refused = std::get_if<RefuseRegistration>(&action)) {
      decisions_.push_back(refusal_text(refused->worker, refused->status));
    } else if (const auto* refuse = std::get_if<RefuseWorker>(&action)) {
      decisions_.push_back(refusal_text(refuse->worker, refuse->status));
      workers_[refuse->worker].connected &=
          workers_[refuse->worker].incarnation != refuse->incarnation;
    } else if (const auto* send = std::get_if<SendToWorker>(&action)) {
      if (const auto* start = std::get_if<SendStartRanks>(&send->payload)) {
        started_[start->job] = *start->spec;
        decisions_.push_back(absl::StrCat(
            "start ", send->worker.value(), " ", start->job.value(), "/", start->attempt.value(),
            " ", range_text(start->ranks),
            start->program_port == 0 ? "" : absl::StrCat(" port ", start->program_port),
            size_text(*start->spec), " saved ",
            start->checkpoint_step < 1 ? "none" : absl::StrCat(start->checkpoint_step)));
      } else if (const auto* stop = std::get_if<SendStopRanks>(&send->payload)) {
        decisions_.push_back(absl::StrCat("stop ", send->worker.value(), " ", stop->job.value(),
                                          "/", stop->attempt.value(), " grace ",
                                          to_seconds(stop->grace)));
      } else if (const auto* save = std::get_if<SendSaveCheckpoint>(&send->payload)) {
        decisions_.push_back(absl::StrCat("save ", send->worker.value(), " ", save->job.value(),
                                          "/", save->attempt.value(), " ", save->rank.value()));
      } else if (const auto* ack = std::get_if<SendReportAck>(&send->payload)) {
        last_ack_ = absl::StrCat(ack->report_id);
      } else {
        note_payload(send->worker, send->payload);
      }
    }
  }
  answer_checks();
}

}  // namespace muster::coordinator

#include "cli/job_view.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal.h"
#include "common/escape.h"
#include "common/progress_page.h"

namespace muster::cli {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", decimals, value) : "nan";
}

// Other users' words, in a line of ours.

std::string age(int64_t unix_ns, int64_t now_unix_ns) {
  return unix_ns == 0 ? "-" : format_duration(static_cast<double>(now_unix_ns - unix_ns) / 1e9);
}

// The rank that speaks for the job: rank 0, when it has reported.
const v1::RankStatus* speaker(const v1::Job& job) {
  const v1::RankStatus* best = nullptr;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (best == nullptr || rank.rank() < best->rank()) best = &rank;
  }
  return best;
}

std::string step_text(const v1::Job& job) {
  const v1::RankStatus* rank = speaker(job);
  const int64_t total = job.spec().steps();
  if (rank == nullptr || rank->step() < 0) return total > 0 ? absl::StrCat("-/", total) : "-";
  return total > 0 ? absl::StrCat(rank->step(), "/", total) : absl::StrCat(rank->step());
}

bool has_figures(const v1::Job& job) {
  const v1::RankStatus* rank = speaker(job);
  return rank != nullptr && rank->step() > 0 && !is_terminal_state(job.state());
}

json spec_to_json(const v1::JobSpec& spec) {
  json out = {{"name", spec.name()},
              {"user", spec.user()},
              {"priority", spec.priority()},
              {"nodes", spec.nodes()},
              {"ranks_per_node", spec.ranks_per_node()},
              {"restarts_max", spec.restarts_max()},
              {"output_directory", spec.output_directory()},
              {"environment", json::object()},
              {"steps", spec.steps()},
              {"stack_traces",
               {{"collect", spec.stack_traces().collect()},
                {"to_cloud", spec.stack_traces().to_cloud()},
                {"interval_seconds", spec.stack_traces().interval_seconds()}}}};
  // Values are often tokens and passwords, and this output ends in logs.
  for (const auto& variable : spec.environment()) out["environment"][variable.first] = "***";
  if (spec.command_size() > 0) {
    out["command"] = std::vector<std::string>(spec.command().begin(), spec.command().end());
    out["working_directory"] = spec.working_directory();
  }
  if (spec.train_config_json().empty()) return out;  // a list's
  json config = json::parse(spec.train_config_json(), nullptr, /*allow_exceptions=*/false);
  out["train_config"] = config.is_discarded() ? json(nullptr) : std::move(config);
  return out;
}

// A program that tells nothing of what it does is in no phase.
bool is_silent(const v1::Job& job, const v1::RankStatus& rank) {
  return job.spec().command_size() > 0 && rank.phase() == phase_name(Phase::kInit) &&
         rank.step() < 0;
}

std::vector<std::string> rank_row(const v1::Job& job, const v1::RankStatus& rank) {
  std::vector<std::string> row = {absl::StrCat(rank.rank()), rank.worker(),
                                  absl::StrCat(rank.pid())};
  if (is_silent(job, rank)) {
    row.resize(row.size() + 7, "-");
    return row;
  }
  row.insert(row.end(), {rank.phase(), absl::StrCat(rank.step()), fixed(rank.loss(), 3),
                         absl::StrCat(fixed(rank.step_seconds(), 3), "s"),
                         format_count(rank.tokens_per_second()),
                         rank.mfu() > 0 ? absl::StrCat(fixed(rank.mfu() * 100, 1), "%") : "-",
                         absl::StrCat(format_duration(rank.last_progress_age_seconds()), " ago")});
  return row;
}

json rank_to_json(const v1::RankStatus& rank) {
  return {{"rank", rank.rank()},
          {"worker", rank.worker()},
          {"pid", rank.pid()},
          {"phase", rank.phase()},
          {"step", rank.step()},
          {"loss", number(rank.loss())},
          {"grad_norm", number(rank.grad_norm())},
          {"step_seconds", number(rank.step_seconds())},
          {"tokens_per_second", number(rank.tokens_per_second())},
          {"mfu", number(rank.mfu())},
          {"checkpoint_step", rank.checkpoint_step()},
          {"checkpoints_saved", rank.checkpoints().saved()},
          {"checkpoints_failed", rank.checkpoints().failed()},
          {"checkpoint_stall_seconds", number(rank.checkpoints().stall_seconds())},
          {"last_progress_age_seconds", number(rank.last_progress_age_seconds())}};
}

json fault_to_json(const v1::Fault& fault) {
  return {{"rank", fault.rank()},           {"worker", fault.worker()},
          {"signal", fault.signal()},       {"exit_code", fault.exit_code()},
          {"last_step", fault.last_step()}, {"message", fault.message()},
          {"unix_ns", fault.unix_ns()}};
}

}  // namespace

bool is_terminal_state(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

bool is_running_state(v1::JobState state) {
  return state == v1::RUNNING || state == v1::SUSPECT || state == v1::DUMPING;
}

json job_to_json(const v1::Job& job) {
  json out = {{"id", job.id()},
              {"state", v1::JobState_Name(job.state())},
              {"reason", job.reason()},
              {"attempt", job.attempt()},
              {"exit_code", job.exit_code()},
              {"tokens_per_second", number(job.tokens_per_second())},
              {"spec", spec_to_json(job.spec())},
              {"placement", json::array()},
              {"ranks", json::array()},
              {"faults", json::array()},
              {"submitted_unix_ns", job.submitted_unix_ns()},
              {"started_unix_ns", job.started_unix_ns()},
              {"finished_unix_ns", job.finished_unix_ns()},
              {"incident", nullptr}};
  if (job.incident().id() != 0)
    out["incident"] = {{"id", job.incident().id()}, {"sentence", job.incident().sentence()}};
  for (const auto& place : job.placement()) {
    out["placement"].push_back(
        {{"rank", place.rank()}, {"worker", place.worker()}, {"local_rank", place.local_rank()}});
  }
  for (const auto& rank : job.ranks()) out["ranks"].push_back(rank_to_json(rank));
  for (const auto& fault : job.faults()) out["faults"].push_back(fault_to_json(fault));
  return out;
}

json worker_to_json(const v1::WorkerInfo& worker) {
  return {{"name", worker.name()},
          {"host", worker.host()},
          {"slots", worker.slots()},
          {"slots_used", worker.slots_used()},
          {"version", worker.version()},
          {"connected", worker.connected()},
          {"leaving", worker.leaving()},
          {"heartbeat_age_seconds", number(worker.heartbeat_age_seconds())}};
}

std::string headline(const v1::Job& job) {
  const std::string attempt =
      job.attempt() > 1 ? absl::StrCat(", attempt ", job.attempt()) : std::string();
  return absl::StrCat("job ", job.id(), " (", shown(job.spec().name()), attempt, ") ",
                      v1::JobState_Name(job.state()), ": ", shown(job.reason()));
}

std::string describe_fault(const v1::Fault& fault) {
  if (!fault.message().empty()) return shown(fault.message());
  std::string text = fault.rank() >= 0 ? absl::StrCat("rank ", fault.rank()) : "the attempt";
  if (!fault.worker().empty()) absl::StrAppend(&text, " on ", shown(fault.worker()));
  if (fault.signal() != 0) {
    const char* name = sigabbrev_np(fault.signal());
    absl::StrAppend(&text, " was killed by signal ", fault.signal(),
                    name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
  } else {
    absl::StrAppend(&text, " ended with exit code ", fault.exit_code());
  }
  if (fault.last_step() >= 0) absl::StrAppend(&text, " after step ", fault.last_step());
  return text;
}

std::string incident_line(const v1::IncidentNote& incident) {
  return absl::StrCat(incident.id(), ": ", shown(incident.sentence()), " (muster incident show ",
                      incident.id(), ")");
}

std::string describe_job(const v1::Job& job, int64_t now_unix_ns) {
  std::string text = absl::StrCat(
      "job ", job.id(), "  ", shown(job.spec().name()), "  ", v1::JobState_Name(job.state()),
      "\n  ", shown(job.reason()), "\n  attempt ", job.attempt(), ", ",
      job.spec().nodes() * job.spec().ranks_per_node(), " ranks on ", job.spec().nodes(),
      job.spec().nodes() == 1 ? " node" : " nodes", ", submitted ",
      age(job.submitted_unix_ns(), now_unix_ns), " ago by ", shown(job.spec().user()),
      "\n  output in ", shown(job.spec().output_directory()), "\n");
  if (is_terminal_state(job.state())) {
    absl::StrAppend(&text, "  finished ", age(job.finished_unix_ns(), now_unix_ns),
                    " ago with exit code ", job.exit_code(), "\n");
  }
  if (has_figures(job)) {
    absl::StrAppend(&text, "  step ", step_text(job), ", ", format_count(job.tokens_per_second()),
                    " tokens/s\n");
  }
  if (const v1::RankStatus* rank = speaker(job); rank != nullptr && rank->checkpoint_step() > 0) {
    absl::StrAppend(&text, "  newest checkpoint: step ", rank->checkpoint_step(), "\n");
  }
  if (job.incident().id() != 0) {
    absl::StrAppend(&text, "  newest incident: ", incident_line(job.incident()), "\n");
  }
  if (job.ranks_size() > 0) {
    std::vector<std::vector<std::string>> rows = {{"RANK", "WORKER", "PID", "PHASE", "STEP", "LOSS",
                                                   "STEP TIME", "TOKENS/S", "MFU", "PROGRESS"}};
    for (const v1::RankStatus& rank : job.ranks()) rows.push_back(rank_row(job, rank));
    absl::StrAppend(&text, "\n", format_table(rows));
  }
  if (job.faults_size() > 0) absl::StrAppend(&text, "\nfaults\n");
  for (const v1::Fault& fault : job.faults()) {
    absl::StrAppend(&text, "  ", age(fault.unix_ns(), now_unix_ns), " ago: ", describe_fault(fault),
                    "\n");
  }
  return text;
}

std::string describe_jobs(const v1::ListJobsResponse& jobs, int64_t now_unix_ns) {
  std::vector<std::vector<std::string>> rows = {{"JOB", "NAME", "USER", "STATE", "ATTEMPT", "RANKS",
                                                 "STEP", "LOSS", "TOKENS/S", "AGE", "REASON"}};
  for (const v1::Job& job : jobs.jobs()) {
    const v1::RankStatus* rank = speaker(job);
    rows.push_back({absl::StrCat(job.id()), job.spec().name(), job.spec().user(),
                    v1::JobState_Name(job.state()), absl::StrCat(job.attempt()),
                    absl::StrCat(job.spec().nodes() * job.spec().ranks_per_node()), step_text(job),
                    has_figures(job) ? fixed(rank->loss(), 3) : "-",
                    has_figures(job) ? format_count(job.tokens_per_second()) : "-",
                    age(job.submitted_unix_ns(), now_unix_ns), job.reason()});
  }
  return format_table(rows);
}

std::string describe_workers(const v1::ListWorkersResponse& workers) {
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "HOST", "SLOTS", "USED", "VERSION", "STATE", "HEARTBEAT"}};
  for (const v1::WorkerInfo& worker : workers.workers()) {
    rows.push_back({worker.name(), worker.host(), absl::StrCat(worker.slots()),
                    absl::StrCat(worker.slots_used()), worker.version(),
                    !worker.connected() ? "away"
                    : worker.leaving()  ? "leaving"
                                        : "connected",
                    absl::StrCat(format_duration(worker.heartbeat_age_seconds()), " ago")});
  }
  return format_table(rows);
}

}  // namespace muster::cli

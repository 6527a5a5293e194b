#include "cli/jobs/job_view.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include "cli/jobs/goodput_view.h"
#include "cli/jobs/node_view.h"
#include "cli/jobs/update_view.h"
#include "cli/terminal/terminal.h"
#include "common/progress/progress_page.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", decimals, value) : "nan";
}

// The number of ranks in a table: as many as a person scrolls through.
constexpr int kRankRowsMax = 1'024;

std::string age(int64_t unix_ns, int64_t now_unix_ns) {
  return unix_ns == 0 ? "-" : format_duration(static_cast<double>(now_unix_ns - unix_ns) / 1e9);
}

// Returns the rank whose figures represent the job: the lowest one that has reported.
const v1::RankStatus* speaker(const v1::Job& job) {
  const v1::RankStatus* best = nullptr;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (best == nullptr || rank.rank() < best->rank()) best = &rank;
  }
  return best;
}

// Returns the steps of the current attempt or, until it shows some, of the attempts before.
std::string step_text(const v1::Job& job) {
  const v1::RankStatus* rank = speaker(job);
  const int64_t total = job.spec().steps();
  int64_t step = rank == nullptr ? -1 : rank->step();
  if (step < 0 && job.newest_step() > 0) step = job.newest_step();
  const std::string done = step < 0 ? "-" : absl::StrCat(step);
  return total > 0 ? absl::StrCat(done, "/", total) : done;
}

// Returns the nodes that the job has, and those it requested if they differ.
std::string nodes_text(const v1::Job& job) {
  if (job.nodes() == 0 || job.nodes() == job.spec().nodes())
    return absl::StrCat(job.spec().nodes());
  return absl::StrCat(job.nodes(), " of ", job.spec().nodes());
}

int32_t ranks_now(const v1::Job& job) {
  const int32_t nodes = job.nodes() == 0 ? job.spec().nodes() : job.nodes();
  return nodes * job.spec().ranks_per_node();
}

bool has_figures(const v1::Job& job) {
  const v1::RankStatus* rank = speaker(job);
  return rank != nullptr && rank->step() > 0 && !is_terminal_state(job.state());
}

// A program that reports no progress has no phase.
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

// Returns the lines about the conditions under which the job may start and run.
std::string queue_lines(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  std::string text;
  if (!spec.array().empty())
    absl::StrAppend(&text, "  task ", spec.array_index(), " of array ", shown(spec.array()), "\n");
  if (spec.time_limit_seconds() > 0) {
    absl::StrAppend(&text, "  time limit ",
                    format_duration(static_cast<double>(spec.time_limit_seconds())), ", used ",
                    format_duration(static_cast<double>(running_ns(job.goodput())) / 1e9), "\n");
  }
  if (spec.node_selector_size() > 0)
    absl::StrAppend(&text, "  only on nodes with ",
                    shown(absl::StrJoin(spec.node_selector(), ", ")), "\n");
  if (spec.tolerations_size() > 0)
    absl::StrAppend(&text, "  also on nodes with the taints ",
                    shown(absl::StrJoin(spec.tolerations(), ", ")), "\n");
  if (spec.dependencies_size() > 0) {
    std::vector<std::string> words;
    for (const v1::Dependency& one : spec.dependencies())
      words.push_back(absl::StrCat(
          absl::StrReplaceAll(absl::AsciiStrToLower(v1::Dependency::Kind_Name(one.kind())),
                              {{"_", "-"}}),
          " ", one.job_id()));
    absl::StrAppend(&text, "  ", absl::StrJoin(words, ", "), "\n");
  }
  return text;
}

// Returns whether `job` and the older `next` are waiting tasks of one array, which a list shows in
// one row.
bool shares_row(const v1::Job& job, const v1::Job& next) {
  const auto is_waiting_task = [](const v1::Job& one) {
    return !one.spec().array().empty() && one.state() == v1::QUEUED && one.attempt() == 0;
  };
  return is_waiting_task(job) && is_waiting_task(next) &&
         job.spec().array() == next.spec().array() && job.spec().user() == next.spec().user();
}

}  // namespace

int64_t running_ns(const v1::Goodput& goodput) {
  int64_t time = goodput.wall_ns();
  for (const v1::Goodput::Loss& loss : goodput.losses())
    if (loss.what() == "waiting") time -= loss.ns();
  return time;
}

bool is_terminal_state(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

bool is_running_state(v1::JobState state) {
  return state == v1::RUNNING || state == v1::SUSPECT || state == v1::DUMPING;
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

std::string submitter(const v1::JobSpec& spec) {
  const std::string team =
      spec.team().empty() ? "" : absl::StrCat(" (team ", shown(spec.team()), ")");
  return absl::StrCat(shown(spec.user()), team);
}

std::string describe_job(const v1::Job& job, int64_t now_unix_ns) {
  std::string text = absl::StrCat(
      "job ", job.id(), "  ", shown(job.spec().name()), "  ", v1::JobState_Name(job.state()),
      "\n  ", shown(job.reason()), "\n  attempt ", job.attempt(), ", ", ranks_now(job),
      ranks_now(job) == 1 ? " rank on " : " ranks on ", nodes_text(job),
      job.spec().nodes() == 1 ? " node" : " nodes", ", submitted ",
      age(job.submitted_unix_ns(), now_unix_ns), " ago by ", submitter(job.spec()),
      "\n  output in ", shown(job.spec().output_directory()), "\n");
  absl::StrAppend(&text, queue_lines(job), describe_revisions(job, now_unix_ns));
  if (job.held_size() > 0) {
    absl::StrAppend(&text, "  reserved for it: ", shown(absl::StrJoin(job.held(), ", ")), "\n");
  }
  if (is_terminal_state(job.state())) {
    absl::StrAppend(&text, "  finished ", age(job.finished_unix_ns(), now_unix_ns),
                    " ago with exit code ", job.exit_code(), "\n");
  }
  if (has_figures(job)) {
    absl::StrAppend(&text, "  step ", step_text(job), ", ", format_count(job.tokens_per_second()),
                    " tokens/s\n");
  } else if (job.newest_step() > 0) {
    absl::StrAppend(&text, "  step ", step_text(job), " before this attempt\n");
  }
  if (const v1::RankStatus* rank = speaker(job); rank != nullptr && rank->checkpoint_step() > 0) {
    absl::StrAppend(&text, "  newest checkpoint: step ", rank->checkpoint_step(), "\n");
  }
  if (const std::string line = goodput_line(job.goodput()); !line.empty())
    absl::StrAppend(&text, "  ", line, "\n");
  if (job.incident().id() != 0) {
    absl::StrAppend(&text, "  newest incident: ", incident_line(job.incident()), "\n");
  }
  if (job.ranks_size() > 0) {
    std::vector<std::vector<std::string>> rows = {{"RANK", "WORKER", "PID", "PHASE", "STEP", "LOSS",
                                                   "STEP TIME", "TOKENS/S", "MFU", "PROGRESS"}};
    const int shown_ranks = std::min(job.ranks_size(), kRankRowsMax);
    for (int i = 0; i < shown_ranks; ++i) rows.push_back(rank_row(job, job.ranks(i)));
    absl::StrAppend(&text, "\n", format_table(rows));
    if (const int32_t count = std::max(job.rank_count(), job.ranks_size()); count > shown_ranks)
      absl::StrAppend(&text, "… and ", count - shown_ranks, " more ranks (--json lists all)\n");
  }
  if (job.faults_size() > 0) absl::StrAppend(&text, "\nfaults\n");
  for (const v1::Fault& fault : job.faults()) {
    absl::StrAppend(&text, "  ", age(fault.unix_ns(), now_unix_ns), " ago: ", describe_fault(fault),
                    "\n");
  }
  return text;
}

std::string describe_job_list(const v1::ListJobsResponse& jobs, int64_t now_unix_ns) {
  std::vector<std::vector<std::string>> rows = {{"JOB", "NAME", "USER", "STATE", "ATTEMPT", "NODES",
                                                 "RANKS", "STEP", "LOSS", "TOKENS/S", "GOODPUT",
                                                 "AGE", "REASON"}};
  for (int i = 0; i < jobs.jobs_size(); ++i) {
    const int newest = i;
    while (i + 1 < jobs.jobs_size() && shares_row(jobs.jobs(i), jobs.jobs(i + 1))) ++i;
    const v1::Job& job = jobs.jobs(i);  // the oldest, whose reason is that of the first to start
    const v1::RankStatus* rank = speaker(job);
    rows.push_back(
        {i == newest ? absl::StrCat(job.id()) : absl::StrCat(job.id(), "-", jobs.jobs(newest).id()),
         i == newest ? job.spec().name()
                     : absl::StrCat(job.spec().name(), " and ", i - newest, " more"),
         job.spec().user(), v1::JobState_Name(job.state()), absl::StrCat(job.attempt()),
         nodes_text(job), absl::StrCat(ranks_now(job)), step_text(job),
         has_figures(job) ? fixed(rank->loss(), 3) : "-",
         has_figures(job) ? format_count(job.tokens_per_second()) : "-",
         goodput_percent(job.goodput()), age(job.submitted_unix_ns(), now_unix_ns), job.reason()});
  }
  std::string text = format_table(rows);
  const std::string all = goodput_line(goodput_of_all({jobs.jobs().begin(), jobs.jobs().end()}));
  if (jobs.jobs_size() > 1 && !all.empty())
    absl::StrAppend(&text, jobs.more() ? "these " : "all ", jobs.jobs_size(), " jobs: ", all, "\n");
  if (jobs.more()) absl::StrAppend(&text, "there are older ones: muster list --all\n");
  return text;
}

std::string describe_workers(const v1::ListWorkersResponse& workers) {
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "HOST", "SLOTS", "USED", "GPUS", "VERSION", "STATE", "HEARTBEAT"}};
  for (const v1::WorkerInfo& worker : workers.workers()) {
    // A restarted coordinator has this worker only from the ranks of its jobs.
    const bool is_expected = !worker.connected() && worker.slots() == 0;
    rows.push_back(
        {worker.name(), is_expected ? "-" : worker.host(),
         is_expected ? "-" : absl::StrCat(worker.slots()),
         absl::StrCat(worker.slots_used(), worker.slots_held() > 0
                                               ? absl::StrCat(" (", worker.slots_held(), " held)")
                                               : std::string()),
         describe_gpus(worker), is_expected ? "-" : worker.version(),
         is_expected              ? "not yet registered"
         : !worker.connected()    ? "away"
         : worker.leaving()       ? "leaving"
         : worker.has_exclusion() ? "left out"
                                  : "connected",
         is_expected ? "-"
                     : absl::StrCat(format_duration(worker.heartbeat_age_seconds()), " ago")});
  }
  return format_table(rows);
}

}  // namespace muster::cli

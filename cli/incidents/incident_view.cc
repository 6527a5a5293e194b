#include "cli/incidents/incident_view.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>

#include "cli/jobs/recovery_view.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "daemon/json/incident_json.h"

namespace muster::cli {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
// Limits of one screen.
constexpr size_t kClassesShown = 4;
constexpr size_t kFramesShown = 6;
constexpr size_t kLinesShown = 5;
constexpr size_t kKernelLinesShown = 5;

// Returns "2026-11-22 12:00:03 UTC"; "-" for an unset time.
std::string date_of(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / kNsPerSecond);
  tm parts{};
  std::array<char, 64> text{};
  if (unix_ns <= 0 || gmtime_r(&seconds, &parts) == nullptr) return "-";
  strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

int64_t opened_at(const v1::Incident& incident) {
  return incident.moments_size() > 0 ? incident.moments(0).unix_ns() : 0;
}

std::string age_of(int64_t unix_ns, int64_t now_unix_ns) {
  return unix_ns == 0 ? "-" : format_duration(static_cast<double>(now_unix_ns - unix_ns) / 1e9);
}

// Returns "rank 1 on node0", "node0" or "unknown".
std::string name_of(const v1::Suspect& suspect) {
  const std::string worker = shown(suspect.worker());
  if (suspect.rank() < 0) return worker.empty() ? "unknown" : worker;
  return absl::StrCat("rank ", suspect.rank(), worker.empty() ? "" : " on ", worker);
}

// Wraps words into lines of at most `columns_max`, each with `indent`.
std::string wrapped(std::string_view text, size_t indent, size_t columns_max) {
  std::string out, line;
  const std::string margin(indent, ' ');
  for (const absl::string_view word : absl::StrSplit(av(text), ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent + columns(line) + 1 + columns(sv(word)) > columns_max) {
      absl::StrAppend(&out, margin, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(&out, margin, line, "\n");
  return out;
}

std::string describe_suspects(const v1::Incident& incident, const StackView& view) {
  if (incident.suspects_size() == 0) return "";
  std::string text = "\nsuspects\n";
  for (const v1::Suspect& suspect : incident.suspects()) {
    const double confidence = std::clamp(suspect.confidence(), 0.0, 1.0);
    const std::string title = absl::StrFormat("  %s (%.0f%%)", name_of(suspect), confidence * 100);
    const bool is_first = &suspect == &incident.suspects(0);
    absl::StrAppend(&text, is_first ? coloured(view.fd, Colour::kRed, title) : title, "\n");
    std::string why = shown(suspect.why());
    absl::StrAppend(&text, wrapped(why, 4, view.columns_max));
    if (!suspect.source().empty())
      absl::StrAppend(
          &text, shorten(absl::StrCat("    at ", shown(suspect.source())), view.columns_max), "\n");
    if (!suspect.collective().empty()) {
      std::string where = absl::StrCat("    in ", shown(suspect.collective()));
      if (!suspect.axis().empty()) absl::StrAppend(&where, " along ", shown(suspect.axis()));
      absl::StrAppend(&text, shorten(where, view.columns_max), "\n");
    }
  }
  return text;
}

std::string describe_moments(const v1::Incident& incident, const StackView& view) {
  if (incident.moments_size() == 0) return "";
  std::string text = absl::StrCat("\nwhat happened, from ", date_of(opened_at(incident)), "\n");
  for (const v1::Incident::Moment& moment : incident.moments()) {
    const double after = static_cast<double>(moment.unix_ns() - opened_at(incident)) / 1e9;
    absl::StrAppend(
        &text,
        shorten(absl::StrFormat("  %+9.3fs  %s", after, shown(moment.text())), view.columns_max),
        "\n");
  }
  return text;
}

bool is_suspect(const v1::Incident& incident, int32_t rank) {
  return std::any_of(incident.suspects().begin(), incident.suspects().end(),
                     [&](const v1::Suspect& suspect) { return suspect.rank() == rank; });
}

std::string_view describe_state(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "sleeps";
    case 'D':
      return "waits in the kernel (D)";
    case 'T':
      return "stopped (T)";
    case 't':
      return "traced (t)";
    case 'Z':
    case 'X':
      return "dead, not reaped (Z)";
    default:
      return "no process";
  }
}

// Returns "rank 1, pid 4711: STEP after step 41, still for 2.5s, stopped (T)".
std::string describe_rank(const RankEvidence& rank) {
  std::string text = absl::StrCat("  rank ", rank.rank, ", pid ", rank.pid, ": ");
  if (rank.page_problem.empty()) {
    absl::StrAppend(&text, av(phase_name(rank.phase)), " after step ", rank.step, ", ",
                    absl::StrFormat("still for %.1fs", to_seconds(rank.progress_age)));
  } else {
    absl::StrAppend(&text, rank.page_problem);
  }
  absl::StrAppend(&text, ", ", av(describe_state(rank.process_state)));
  if (rank.tracer_pid != 0) absl::StrAppend(&text, ", traced by pid ", rank.tracer_pid);
  if (!rank.wait_channel.empty()) absl::StrAppend(&text, ", in ", rank.wait_channel);
  if (rank.memory.limit > 0) absl::StrAppend(&text, ", memory ", to_string(rank.memory));
  return text;
}

std::string describe_rank_list(const v1::Incident& incident, const std::vector<RankEvidence>& ranks,
                               const StackView& view) {
  if (ranks.empty()) return "";
  std::string text = "\nranks\n";
  for (const RankEvidence& rank : ranks) {
    if (&rank - ranks.data() == kLinesShown) break;
    const std::string line = shorten(describe_rank(rank), view.columns_max);
    absl::StrAppend(&text,
                    is_suspect(incident, rank.rank) ? coloured(view.fd, Colour::kRed, line) : line,
                    "\n");
    for (const std::string& file : rank.files)
      absl::StrAppend(&text, shorten(absl::StrCat("    kept: ", file), view.columns_max), "\n");
  }
  const std::string groups = describe_groups(
      {ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(std::min(ranks.size(), kLinesShown))});
  for (const absl::string_view line : absl::StrSplit(groups, '\n', absl::SkipEmpty()))
    absl::StrAppend(&text, shorten(absl::StrCat("  ", line), view.columns_max), "\n");
  return text;
}

std::string describe_lines(std::string_view heading, const std::vector<std::string>& lines,
                           size_t count_max, const StackView& view) {
  if (lines.empty()) return "";
  std::string text = absl::StrCat("\n", av(heading), "\n");
  for (size_t i = lines.size() - std::min(lines.size(), count_max); i < lines.size(); ++i)
    absl::StrAppend(&text, shorten(absl::StrCat("  ", lines[i]), view.columns_max), "\n");
  return text;
}

}  // namespace

std::string describe_incident_list(const v1::ListIncidentsResponse& incidents, int64_t now_unix_ns,
                                   size_t columns_max) {
  std::vector<std::vector<std::string>> rows = {
      {"INCIDENT", "JOB", "KIND", "AGE", "BACK AFTER", "WHAT"}};
  for (const v1::Incident& incident : incidents.incidents()) {
    rows.push_back({absl::StrCat(incident.id()), absl::StrCat(incident.job_id()),
                    absl::StrCat(incident.kind(), incident.open() ? " (open)" : ""),
                    age_of(opened_at(incident), now_unix_ns), time_to_recover(incident),
                    incident.sentence()});
  }
  std::string text;
  for (const absl::string_view line : absl::StrSplit(format_table(rows), '\n', absl::SkipEmpty()))
    absl::StrAppend(&text, shorten(sv(line), columns_max), "\n");
  return text;
}

absl::StatusOr<std::string> describe_incident(const v1::Incident& incident, int64_t now_unix_ns,
                                              StackView view) {
  const auto evidence = daemon::evidence_of(incident);
  if (!evidence.ok()) return evidence.status();
  // Marks only the first suspect: most of the others are victims.
  if (incident.suspects_size() > 0) view.suspects.add(incident.suspects(0).rank());
  view.classes_max = std::min(view.classes_max, kClassesShown);
  view.frames_max = std::min(view.frames_max, kFramesShown);
  std::string text = absl::StrCat(
      "incident ", incident.id(), ": ", shown(incident.kind()), incident.open() ? " (open)" : "",
      ", job ", incident.job_id(), " (", shown(incident.job_name()), "), attempt ",
      incident.attempt(), ", ", age_of(opened_at(incident), now_unix_ns), " ago\n");
  absl::StrAppend(&text, wrapped(shown(incident.sentence()), 0, view.columns_max));
  if (!incident.diagnosis().empty())
    absl::StrAppend(&text, wrapped(absl::StrCat("known error: ", shown(incident.diagnosis())), 0,
                                   view.columns_max));
  if (!incident.action().empty())
    absl::StrAppend(
        &text, wrapped(absl::StrCat("action: ", shown(incident.action())), 0, view.columns_max));
  for (const std::string& line : describe_recovery(incident))
    absl::StrAppend(&text, wrapped(line, 0, view.columns_max));
  absl::StrAppend(&text, describe_suspects(incident, view), describe_moments(incident, view),
                  describe_rank_list(incident, evidence->ranks, view));
  const std::string stacks = absl::StrCat(describe_stacks(evidence->stacks, view),
                                          describe_stack_problems(evidence->ranks, view));
  if (!stacks.empty()) absl::StrAppend(&text, "\nstacks of main threads\n", stacks);
  for (const RankEvidence& rank : evidence->ranks) {
    if (!is_suspect(incident, rank.rank)) continue;
    absl::StrAppend(&text, describe_lines(absl::StrCat("last lines of rank ", rank.rank),
                                          rank.last_lines, kLinesShown, view));
    break;  // only those of the likeliest suspect
  }
  absl::StrAppend(
      &text, describe_lines("kernel messages", evidence->kernel_messages, kKernelLinesShown, view));
  return text;
}

}  // namespace muster::cli

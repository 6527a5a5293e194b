#include "coordinator/core/incident/incident_book.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
#include "common/text/has_any.h"
#include "coordinator/core/recovery/log_verdict.h"

namespace muster::coordinator {
namespace {

// The confidence in a suspect that is named by its own end or silence.
constexpr double kSelfEvident = 0.95;

}  // namespace

IncidentBook::IncidentBook(const std::vector<IncidentId>& stored, std::vector<Incident> open)
    : stored_(stored.begin(), stored.end()) {
  if (!stored_.empty()) last_ = *stored_.rbegin();
  for (Incident& incident : open) {
    const IncidentId id = incident.id;
    last_ = std::max(last_, id);
    stored_.insert(id);
    incidents_.emplace(id, std::move(incident));
  }
}

IncidentId IncidentBook::open(Incident incident) {
  last_ = IncidentId(last_.value() + 1);
  incident.id = last_;
  incidents_.emplace(last_, std::move(incident));
  changed_.insert(last_);
  return last_;
}

Incident* IncidentBook::change(IncidentId id) {
  const auto found = incidents_.find(id);
  if (found == incidents_.end()) return nullptr;
  changed_.insert(id);
  return &found->second;
}

const Incident* IncidentBook::find(IncidentId id) const {
  const auto found = incidents_.find(id);
  return found == incidents_.end() ? nullptr : &found->second;
}

void IncidentBook::note(IncidentId id, int64_t unix_ns, std::string text) {
  Incident* incident = change(id);
  if (incident == nullptr) return;
  // The first moments show how the incident began, and the last one how it ended.
  if (incident->moments.size() >= kIncidentMomentsMax) incident->moments.pop_back();
  incident->moments.push_back({unix_ns, std::move(text)});
}

void IncidentBook::close(IncidentId id) {
  if (Incident* incident = change(id); incident != nullptr) incident->open = false;
}

std::vector<IncidentId> IncidentBook::open_of(JobId job) const {
  std::vector<IncidentId> open;
  for (const auto& [id, incident] : incidents_) {
    if (incident.job == job && incident.open) open.push_back(id);
  }
  return open;
}

size_t IncidentBook::open_count() const {
  return static_cast<size_t>(
      std::ranges::count_if(incidents_, [](const auto& incident) { return incident.second.open; }));
}

void IncidentBook::settle(IncidentId id) {
  if (const auto awaited = awaited_.find(id); awaited != awaited_.end()) awaited_.erase(awaited);
  if (!changed_.contains(id)) forget_if_over(id);
}

void IncidentBook::forget_if_over(IncidentId id) {
  const auto found = incidents_.find(id);
  if (found != incidents_.end() && !found->second.open && !awaited_.contains(id))
    incidents_.erase(found);
}

IncidentBook::Changes IncidentBook::take_changes() {
  Changes changes;
  for (const IncidentId id : std::exchange(changed_, {})) {
    changes.stored.push_back(incidents_.at(id));
    stored_.insert(id);
    forget_if_over(id);
  }
  while (stored_.size() > kIncidentsKeptMax) {
    // Open incidents of any age are retained.
    const auto over = std::find_if(stored_.begin(), stored_.end(), [&](IncidentId id) {
      const auto known = incidents_.find(id);
      return known == incidents_.end() || !known->second.open;
    });
    const auto dropped = over == stored_.end() ? stored_.begin() : over;
    const IncidentId oldest = *dropped;
    stored_.erase(dropped);
    incidents_.erase(oldest);
    awaited_.erase(oldest);
    changes.forgotten.push_back(oldest);
  }
  return changes;
}

IncidentKind kind_of_exit(const RankExit& exit) {
  constexpr std::array<std::string_view, 3> kMemoryWords = {"std::bad_alloc", "out of memory",
                                                            "cannot allocate memory"};
  constexpr std::array<std::string_view, 2> kDiskWords = {"no space left on device",
                                                          "disk quota exceeded"};
  if (exit.cause == ExitCause::kOutOfMemory) return IncidentKind::kOutOfMemory;
  if (exit.cause == ExitCause::kGpuFault) return IncidentKind::kGpuFault;
  if (exit.cause == ExitCause::kNodeFault) return IncidentKind::kNotStarted;
  if (exit.cause == ExitCause::kWorkerStalled) return IncidentKind::kWorkerLost;
  if (ended_as(exit, ExitCode::kNotFinite)) return IncidentKind::kNotFinite;
  if (ended_as(exit, ExitCode::kDiskFull)) return IncidentKind::kDiskFull;
  const std::string lower = absl::AsciiStrToLower(exit.detail);
  if (has_any(lower, kMemoryWords)) return IncidentKind::kOutOfMemory;
  if (has_any(lower, kDiskWords)) return IncidentKind::kDiskFull;
  return IncidentKind::kRankDied;
}

Incident incident_of_fault(const Job& job, const Fault& fault, IncidentKind kind,
                           int64_t last_progress_unix_ns) {
  Incident incident;
  incident.job = job.id;
  incident.attempt = job.attempt;
  incident.job_name = job.spec.name;
  incident.owner = job_owner(job.spec);
  incident.kind = kind;
  incident.sentence = fault.message;
  if (fault.rank.value() >= 0 || !fault.worker.value().empty()) {
    Suspect& suspect = incident.suspects.emplace_back();
    suspect.rank = fault.rank;
    suspect.worker = fault.worker;
    suspect.why = fault.message;
    suspect.confidence = kSelfEvident;
  }
  if (!fault.peer.value().empty()) {  // either node may be at fault
    incident.suspects.back().confidence /= 2;
    incident.suspects.push_back(incident.suspects.back());
    incident.suspects.back().worker = fault.peer;
  }
  if (last_progress_unix_ns > 0)
    incident.moments.push_back({last_progress_unix_ns, "last progress of the job"});
  incident.moments.push_back({fault.unix_ns, fault.message});
  return incident;
}

std::string action_text(const RestartDecision& decision, const Fault& fault) {
  const std::string& reason = decision.reason;
  const size_t at = reason.find(fault.message);
  if (fault.message.empty() || at == std::string::npos) return reason;
  const std::string before(absl::StripSuffix(reason.substr(0, at), ": "));
  const std::string after(absl::StripPrefix(reason.substr(at + fault.message.size()), "; "));
  const std::string rest = absl::StrCat(before, before.empty() || after.empty() ? "" : "; ", after);
  return decision.restart ? rest : absl::StrCat("the job fails: ", rest);
}

std::string diagnosis_text(const RestartDecision& decision, const Fault& fault) {
  const ErrorFamily* family = family_of(fault);
  if (family == nullptr) return "";
  const bool goes_elsewhere =
      fault.node_unfit || (fault.has_elsewhere && !fault.nodes_without_link.empty());
  const std::string_view verdict = !decision.restart ? "stop"
                                   : goes_elsewhere  ? "restart elsewhere"
                                                     : "restart in place";
  return absl::StrCat(av(family->name), ": ", av(family->meaning), " Verdict: ", av(verdict));
}

void complete_crash(IncidentBook& incidents, const CrashEvidence& crash) {
  const Incident* incident = crash.incident ? incidents.find(*crash.incident) : nullptr;
  if (incident == nullptr) return;
  if (Incident complete = *incident; complete_crash_evidence(complete, crash))
    *incidents.change(*crash.incident) = std::move(complete);
}

void close_open_incidents(IncidentBook& incidents, const Job& job, const std::string& text,
                          int64_t unix_ns) {
  for (const IncidentId id : incidents.open_of(job.id)) {
    const bool continues = std::ranges::any_of(job.slow_nodes, [&](const SlowNode& node) {
      return node.incident == id && !node.is_measured;
    });
    if (continues) continue;
    incidents.note(id, unix_ns, text);
    Incident& incident = *incidents.change(id);
    // The action that was to come does not.
    if (absl::StartsWith(incident.action, "none yet") ||
        absl::StartsWith(incident.action, "the job leaves"))
      incident.action = "none: " + text;
    incidents.close(id);
  }
}

std::vector<RankEvidence> evidence_to_store(const BlameInput& input, const Blame& blame) {
  std::vector<int32_t> wanted;
  for (const Suspect& suspect : blame.suspects) wanted.push_back(suspect.rank.value());
  for (const StackTree::Class& place : input.later.stacks.classes())
    if (!place.ranks.empty()) wanted.push_back(place.ranks.ranges().front().first);
  std::map<int32_t, const RankEvidence*> known;
  for (const RankEvidence& rank : input.later.ranks) known.emplace(rank.rank, &rank);
  std::vector<RankEvidence> kept;
  std::set<int32_t> taken;
  for (const int32_t rank : wanted) {
    const auto found = known.find(rank);
    if (found == known.end() || kept.size() >= kIncidentRanksMax || !taken.insert(rank).second)
      continue;
    kept.push_back(*found->second);
  }
  return kept;
}

void take_blame(Incident& incident, const BlameInput& input, const Blame& blame) {
  incident.sentence = blame.sentence;
  incident.suspects = blame.suspects;
  incident.stacks = input.later.stacks;
  incident.ranks = evidence_to_store(input, blame);
}

}  // namespace muster::coordinator

#include "cli/admin/doctor_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kDaySeconds = 86'400;
// An event that is older delays faults and starts noticeably.
constexpr double kLateSeconds = 2;
// Certificates are usually renewed at least a month before they expire.
constexpr int64_t kCertificateDays = 14;
// The difference from which on times of logs and incidents mislead.
constexpr double kClockSeconds = 5;
// The parts from which on a resource is nearly used up, as in the alerts.
constexpr double kDiskFree = 0.05;
constexpr double kDescriptorsUsed = 0.8;
// The descriptors that a coordinator reserves for files and pages.
constexpr int64_t kDescriptorsReserved = 128;
// A connected worker that was silent for longer: three leases of a small fleet.
constexpr double kSilentSeconds = 30;
constexpr size_t kWorkersNamed = 5;

std::string gibibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

// Returns a number of workers with their names: "2 workers (node1, node7)".
std::string named_workers(const std::vector<std::string>& names) {
  std::vector<std::string> shown_names(names.begin(),
                                       names.begin() + std::min(names.size(), kWorkersNamed));
  if (names.size() > kWorkersNamed) shown_names.emplace_back("…");
  return absl::StrCat(names.size(), names.size() == 1 ? " worker (" : " workers (",
                      absl::StrJoin(shown_names, ", "), ")");
}

Finding core_finding(const v1::Coordinator& coordinator) {
  const double age = static_cast<double>(coordinator.oldest_event_age_ns()) / kNanosPerSecond;
  if (!coordinator.decides())
    return {"core", false, "it decides nothing: its core is stuck, or its state cannot be stored",
            "read the coordinator's log; if its disk is full, make room"};
  Finding finding{"core", age < kLateSeconds,
                  absl::StrFormat("epoch %d; %d events wait, the oldest for %.1f s",
                                  coordinator.epoch(), coordinator.queued_events(), age),
                  ""};
  if (!finding.ok) finding.advice = "see docs/runbooks/coordinator-late.md";
  return finding;
}

Finding disk_finding(const v1::Coordinator& coordinator) {
  const auto bytes = static_cast<double>(coordinator.disk_bytes());
  if (bytes <= 0)
    return {"disk", false,
            absl::StrCat("the disk of ", shown(coordinator.state_dir()), " reports no size"),
            "check the mount of the state folder"};
  const double part = static_cast<double>(coordinator.disk_free_bytes()) / bytes;
  Finding finding{
      "disk", part >= kDiskFree,
      absl::StrFormat("%s of %s are free at %s; the state has %.1f MiB",
                      gibibytes(coordinator.disk_free_bytes()), gibibytes(coordinator.disk_bytes()),
                      shown(coordinator.state_dir()),
                      static_cast<double>(coordinator.state_bytes()) / (1 << 20)),
      ""};
  if (!finding.ok)
    finding.advice = "make room: see docs/runbooks/disk.md; a full disk stops all decisions";
  return finding;
}

// The coordinator read its clock between the question and the answer.
Finding clock_finding(const v1::Coordinator& coordinator, int64_t requested, int64_t answered) {
  const int64_t early = requested - coordinator.unix_ns();
  const int64_t late = coordinator.unix_ns() - answered;
  const double off = static_cast<double>(std::max<int64_t>({early, late, 0})) / kNanosPerSecond;
  Finding finding{
      "clock", off < kClockSeconds,
      absl::StrFormat("differs by %s from this machine's",
                      off == 0 ? "less than the time of a call" : absl::StrFormat("%.1f s", off)),
      ""};
  if (!finding.ok) finding.advice = "synchronise both clocks (timedatectl set-ntp true)";
  return finding;
}

Finding certificate_finding(const v1::Coordinator& coordinator) {
  if (!coordinator.has_certificate()) return {"certificate", true, "none: the API has no TLS", ""};
  const v1::ServerCertificate& certificate = coordinator.certificate();
  const std::string path = shown(certificate.path());
  const char* advice =
      "replace the files of --tls-cert and --tls-key; no restart is necessary "
      "(docs/trust.md)";
  if (!certificate.problem().empty())
    return {"certificate", false, shown(certificate.problem()), advice};
  const int64_t now = coordinator.unix_ns() / kNanosPerSecond;
  if (now < certificate.not_before_unix_s())
    return {"certificate", false, absl::StrCat(path, " is not valid yet"),
            "check the coordinator's clock, and the certificate's validity"};
  const int64_t left = certificate.not_after_unix_s() - now;
  if (left <= 0) return {"certificate", false, absl::StrCat(path, " has expired"), advice};
  Finding finding{"certificate", left >= kCertificateDays * kDaySeconds,
                  absl::StrCat(path, " is valid for ", format_duration(static_cast<double>(left))),
                  ""};
  if (!finding.ok) finding.advice = advice;
  return finding;
}

Finding descriptors_finding(const v1::Coordinator& coordinator) {
  const auto most = static_cast<double>(coordinator.max_fds());
  Finding finding{
      "descriptors", static_cast<double>(coordinator.open_fds()) < kDescriptorsUsed * most,
      absl::StrCat(coordinator.open_fds(), " of ", coordinator.max_fds(), " in use"), ""};
  if (!finding.ok)
    finding.advice =
        "raise the hard limit (LimitNOFILE= of the unit) and restart the coordinator: "
        "see docs/runbooks/descriptors.md";
  return finding;
}

// Returns the finding about the workers for which `is_bad` holds.
Finding worker_finding(const v1::ListWorkersResponse& workers, const char* check,
                       const std::function<bool(const v1::WorkerInfo&)>& is_bad, const char* good,
                       const char* bad, const char* advice) {
  std::vector<std::string> names;
  for (const v1::WorkerInfo& worker : workers.workers())
    if (is_bad(worker)) names.push_back(shown(worker.name()));
  if (names.empty()) return {check, true, good, ""};
  return {check, false, absl::StrCat(named_workers(names), " ", bad), advice};
}

}  // namespace

Finding version_finding(const v1::Coordinator& coordinator, const std::string& version) {
  Finding finding{
      "version", coordinator.version() == version,
      absl::StrCat("coordinator ", shown(coordinator.version()), ", this program ", version), ""};
  if (!finding.ok)
    finding.advice = "install the coordinator's version of muster here, or update the coordinator";
  return finding;
}

Finding worker_versions_finding(const v1::ListWorkersResponse& workers,
                                const std::string& version) {
  return worker_finding(
      workers, "worker versions",
      [&](const v1::WorkerInfo& worker) {
        return worker.connected() && worker.version() != version;
      },
      "that of the coordinator",
      "with another version than the coordinator's: no ranks are placed there", "update them");
}

std::vector<Finding> examine_coordinator(const v1::Coordinator& coordinator,
                                         const std::string& version, int64_t requested_unix_ns,
                                         int64_t answered_unix_ns) {
  return {version_finding(coordinator, version),
          core_finding(coordinator),
          disk_finding(coordinator),
          clock_finding(coordinator, requested_unix_ns, answered_unix_ns),
          certificate_finding(coordinator),
          descriptors_finding(coordinator)};
}

std::vector<Finding> examine_workers(const v1::ListWorkersResponse& workers,
                                     const std::string& version, int64_t max_fds) {
  std::vector<Finding> findings;
  if (workers.workers().empty()) {
    return {{"workers", false, "no worker is registered",
             "start muster-worker on each node, and read its log if it is refused"}};
  }
  if (!version.empty()) findings.push_back(worker_versions_finding(workers, version));
  findings.push_back(worker_finding(
      workers, "connections",
      [](const v1::WorkerInfo& worker) {
        return !worker.connected() || worker.heartbeat_age_seconds() > kSilentSeconds;
      },
      "all workers are connected", "away or silent", "see docs/runbooks/heartbeat-lost.md"));
  findings.push_back(worker_finding(
      workers, "nodes", [](const v1::WorkerInfo& worker) { return worker.has_exclusion(); },
      "no node is left out", "left out: no ranks are placed there",
      "`muster node list` shows why; `muster node admit NODE` places ranks there again"));
  if (max_fds > 0 && max_fds < workers.workers_size() + kDescriptorsReserved) {
    findings.push_back(
        {"descriptor limit", false,
         absl::StrCat(workers.workers_size(), " workers need ",
                      workers.workers_size() + kDescriptorsReserved,
                      " descriptors, and the coordinator may open ", max_fds),
         "raise the hard limit (LimitNOFILE= of the unit) and restart the coordinator"});
  }
  return findings;
}

}  // namespace muster::cli

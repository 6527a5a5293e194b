// A file for Prometheus' file_sd that names the address of one daemon's pages in a Slurm job. It
// exists as long as its object, unless another process has overwritten it: the file of the job's
// next allocation has the same name. It is readable by everybody, because Prometheus runs as
// another user. Not thread-safe.
//
// A killed process leaves its file behind. The name contains the job, and Slurm lists the jobs that
// exist: the next command that writes into the folder removes files of other jobs. (A lock on the
// file would cover this node only on some of the file systems that nodes share.)
#pragma once

#include <functional>
#include <set>
#include <string>

#include <absl/status/statusor.h>

namespace muster::cli {

// Empty labels are omitted.
struct ScrapeLabels {
  std::string job{};   // the Prometheus job name: "muster-worker"
  std::string node{};  // the daemon's node
  // the cluster of the daemon's coordinator: alerts and dashboards group by it
  std::string cluster{};
};

class ScrapeTarget {
 public:
  ScrapeTarget(std::string path, ScrapeLabels labels)
      : path_(std::move(path)), labels_(std::move(labels)) {}
  ~ScrapeTarget();
  ScrapeTarget(const ScrapeTarget&) = delete;
  ScrapeTarget& operator=(const ScrapeTarget&) = delete;

  // `host` is in address form: IPv6 in brackets.
  absl::Status write(const std::string& host, int port);

 private:
  const std::string path_;
  const ScrapeLabels labels_;
  std::string text_;  // as written; empty: not written
};

// The file names of one Slurm job's daemons.
struct ScrapeOwner {
  std::string cluster{};  // Slurm's ClusterName
  std::string job{};      // in scontrol's form: "12", "12_3"

  std::string coordinator_file() const;  // "CLUSTER-JOB-coordinator.json"
  std::string worker_file(const std::string& node) const;
};
// Returns the job that a file belongs to; empty for files of another cluster, and for other files.
std::string job_of_scrape_file(const std::string& name, const std::string& cluster);

// Removes stale files before `self` writes its first one into `folder`: those of its earlier
// allocations, and those of this user's jobs in its cluster that are not in the result of
// `started`. Returns their number. Calls `started` after reading the folder, and only if there are
// files of other jobs; if it fails, returns its error and keeps those files.
absl::StatusOr<int> remove_dead_targets(
    const std::string& folder, const ScrapeOwner& self,
    const std::function<absl::StatusOr<std::set<std::string>>()>& started);

}  // namespace muster::cli

// A file for Prometheus' file_sd (file-based service discovery) with the address of the HTTP pages
// of one daemon in a Slurm job. The destructor removes the file, unless another process has
// overwritten it: the file of the job's next allocation has the same name. All users may read the
// file, because Prometheus runs as another user. Not thread-safe.
//
// A killed process leaves its file behind. The file's name contains the job, and Slurm lists the
// existing jobs: the next command that writes into the folder removes the files of jobs that no
// longer exist. (A lock on the file would not detect this, because on some shared file systems a
// lock is visible on one node only.)
#pragma once

#include <functional>
#include <set>
#include <string>

#include <absl/status/statusor.h>

namespace muster::cli {

// The Prometheus labels of the daemon's series; empty labels are omitted.
struct ScrapeLabels {
  std::string job{};   // Prometheus' job name: "muster-worker"
  std::string node{};  // the daemon's node
  // name of the coordinator's cluster, by which alerts and dashboards group
  std::string cluster{};
};

// The file of one daemon.
class ScrapeTarget {
 public:
  ScrapeTarget(std::string path, ScrapeLabels labels)
      : path_(std::move(path)), labels_(std::move(labels)) {}
  ~ScrapeTarget();
  ScrapeTarget(const ScrapeTarget&) = delete;
  ScrapeTarget& operator=(const ScrapeTarget&) = delete;

  // Writes the file with the address host:port. `host`: an IPv6 address is in brackets.
  absl::Status write(const std::string& host, int port);

 private:
  const std::string path_;
  const ScrapeLabels labels_;
  std::string text_;  // the file's content; empty: not written
};

// The file names of one Slurm job's daemons.
struct ScrapeOwner {
  std::string cluster{};  // Slurm's ClusterName
  std::string job{};      // job number in scontrol's form: "12", "12_3"

  std::string coordinator_file() const;  // "CLUSTER-JOB-coordinator.json"
  std::string worker_file(const std::string& node) const;
};
// Returns the job to which the file `name` belongs; "" for files of another cluster, and for other
// files.
std::string job_of_scrape_file(const std::string& name, const std::string& cluster);

// Removes stale files from `folder`, before the job `self` writes its first file there: files of
// the job's own earlier allocations, and files of this user's other jobs in the cluster that
// `started` does not return. `started` returns the jobs that have nodes; it is called after reading
// the folder, and only if there are files of other jobs. Returns the number of removed files; if
// `started` fails, its error, and the files of other jobs remain.
absl::StatusOr<int> remove_dead_targets(
    const std::string& folder, const ScrapeOwner& self,
    const std::function<absl::StatusOr<std::set<std::string>>()>& started);

}  // namespace muster::cli

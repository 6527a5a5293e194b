// A file of Prometheus' file_sd: where one daemon of a Slurm job serves its pages. It is there as long as its object, unless another has
// written it since: the next turn's has the same name. Readable by everybody, because Prometheus is another user. Of one thread.
//
// Who is killed leaves its file behind. Its name says which job it is of, and Slurm says which jobs there are: the next command that writes
// into the folder takes away what is of none. (A lock on the file would say so of this node alone on some of the file systems that nodes share.)
#pragma once

#include <functional>
#include <set>
#include <string>

#include <absl/status/statusor.h>

namespace muster::cli {

// Empty ones are left out.
struct ScrapeLabels {
  std::string job{};      // what Prometheus calls it: "muster-worker"
  std::string node{};     // where it is
  std::string cluster{};  // whose coordinator it belongs to: alerts and dashboards keep apart by it
};

class ScrapeTarget {
 public:
  ScrapeTarget(std::string path, ScrapeLabels labels)
      : path_(std::move(path)), labels_(std::move(labels)) {}
  ~ScrapeTarget();
  ScrapeTarget(const ScrapeTarget&) = delete;
  ScrapeTarget& operator=(const ScrapeTarget&) = delete;

  // `host` as an address is written: an IPv6 one in brackets.
  absl::Status write(const std::string& host, int port);

 private:
  const std::string path_;
  const ScrapeLabels labels_;
  std::string text_;  // as written; empty: it is not
};

// What the files of one Slurm job's daemons are called.
struct ScrapeOwner {
  std::string cluster{};  // Slurm's name of itself
  std::string job{};      // as scontrol takes it: "12", "12_3"

  std::string coordinator_file() const;  // "CLUSTER-JOB-coordinator.json"
  std::string worker_file(const std::string& node) const;
};
// The job whose file it is; empty for another cluster's, and for what is none of these files.
std::string job_of_scrape_file(const std::string& name, const std::string& cluster);

// Before `self` writes its first file in `folder`: takes away those of its earlier turns, and those of this user's jobs of its cluster that
// `started` does not have. How many. `started` is asked once the folder has been read, if there are others' files; where it has no answer, that
// is the error, and those stay.
absl::StatusOr<int> remove_dead_targets(
    const std::string& folder, const ScrapeOwner& self,
    const std::function<absl::StatusOr<std::set<std::string>>()>& started);

}  // namespace muster::cli

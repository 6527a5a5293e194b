// A file of Prometheus' file_sd: where one daemon of a Slurm job serves its pages. It is there as long as its object, unless another has
// written it since: the next turn's has the same name. Readable by everybody, because Prometheus is another user. Of one thread.
#pragma once

#include <string>

#include <absl/status/status.h>

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

}  // namespace muster::cli

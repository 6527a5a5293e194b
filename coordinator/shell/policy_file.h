// The file of --queue-policy: quotas, priority ceilings and shares, as JSON.
//
//   {"half_life_hours": 168,
//    "user_defaults": {"running_gpus_max": 64, "waiting_jobs_max": 100},
//    "team_defaults": {},
//    "users": {"ada": {"shares": 2, "priority_max": 10}},
//    "teams": {"vision": {"running_gpus_max": 256}}}
//
// The entry of a user or a team replaces the keys that it has, and takes the others from the
// defaults.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/core/records/queue_policy.h"
#include "coordinator/shell/metrics/shell_metrics.h"

namespace muster::coordinator {

// Parses the file's content. Errors name the key, its value and what would be right.
absl::StatusOr<QueuePolicy> parse_queue_policy(std::string_view text);

// Reads the file again when it has changed. An invalid version is logged, shown as a metric and not
// used. Thread-safe.
class PolicyFile {
 public:
  struct Version {
    QueuePolicy policy{};
    std::string text{};  // from which it was read
  };
  using Use = std::function<absl::Status(Version version)>;

  // Reads the file. Errors name it.
  static absl::StatusOr<Version> read(const std::string& path);
  // Reads the file, and shows whether it is valid. If it is not, warns and returns the policy of
  // the text `stored`. Error: that of the file, if there is no such text.
  static absl::StatusOr<Version> read_or(const std::string& path, const std::string& stored,
                                         ShellMetrics& metrics);

  // Calls `use` with `first`, and later on a thread of its own, which reads the file each `every`,
  // with each valid new version. If `use` fails, it is called again after the next reading, with a
  // newer version if there is one.
  PolicyFile(std::string path, Version first, Duration every, Use use,
             std::shared_ptr<ShellMetrics> metrics);
  ~PolicyFile();
  PolicyFile(const PolicyFile&) = delete;
  PolicyFile& operator=(const PolicyFile&) = delete;

 private:
  void run();
  void refresh();
  void offer(Version version);

  const std::string path_;
  const Duration every_;
  const Use use_;
  const std::shared_ptr<ShellMetrics> metrics_;
  std::string trouble_;
  std::optional<QueuePolicy> used_;
  std::optional<Version> offered_;  // the newest version, if it is not used yet
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace muster::coordinator

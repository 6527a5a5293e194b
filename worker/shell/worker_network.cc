// The worker's reactions to changes of the node's network devices. Nothing here reads sysfs.
#include <algorithm>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "worker/shell/worker.h"
#include "worker/stacks/kernel_messages.h"

namespace muster::worker {

void Worker::check_network() {
  const std::string silence = network_silence(network_.report(), monotonic_now());
  if (std::exchange(network_is_silent_, !silence.empty()) == network_is_silent_) return;
  if (silence.empty()) {
    spdlog::info("network devices answer again");
  } else {
    spdlog::error("{}", silence);
  }
}

NodeCheckDone Worker::with_network(NodeCheckDone done) const {
  const NetworkReport report = network_.report();
  if (const std::string problems = network_problems(report, monotonic_now()); !problems.empty()) {
    done.sentence = done.passed ? problems : absl::StrCat(done.sentence, "; ", problems);
    done.passed = false;
  }
  if (const std::string devices = describe_network(report); !devices.empty())
    absl::StrAppend(&done.details, done.details.empty() ? "" : "; ", devices);
  return done;
}

StackResults Worker::with_network(StackResults read) const {
  const Instant now = monotonic_now();
  const Instant since = now - std::min(kKernelMessagesAge, now.time_since_epoch());
  add_network_messages(network_.report(), since, now, read.kernel_messages);
  return read;
}

}  // namespace muster::worker

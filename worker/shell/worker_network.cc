// The worker's reactions to changes of the node's network devices. Nothing on the event loop's
// thread reads sysfs.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/job/rank_evidence.h"
#include "worker/shell/worker.h"
#include "worker/stacks/kernel_messages.h"

namespace muster::worker {
namespace {

constexpr Duration kNetworkSampleInterval = std::chrono::seconds(5);

}  // namespace

// A measurement that does not end, because a driver hangs, is not followed by another one.
void Worker::sample_network() {
  const Instant now = monotonic_now();
  if (network_sample_ != nullptr || now < next_network_sample_) return;
  next_network_sample_ = now + kNetworkSampleInterval;
  network_sample_ = files_.run([network = network_] { network->measure(); },
                               [this] {
                                 network_sample_ = nullptr;
                                 log_network();
                               });
}

void Worker::log_network() {
  const NetworkReport report = network_->report();
  const auto news = std::min<uint64_t>(report.changes - network_changes_, report.events.size());
  for (size_t i = report.events.size() - news; i < report.events.size(); ++i)
    spdlog::warn("network: {}", network_event_text(report.events[i]));
  network_changes_ = report.changes;
}

// The newest measurement may be older than the fault that led to the check.
void Worker::on_node_checked(NodeCheckDone done) {
  const auto checked = std::make_shared<NodeCheckDone>(with_gpus(std::move(done)));
  const auto task = files_.run([network = network_] { network->measure(); },
                               [this, checked] { handle(with_network(std::move(*checked))); });
  if (task == nullptr) handle(with_network(std::move(*checked)));
}

NodeCheckDone Worker::with_network(NodeCheckDone done) const {
  const NetworkReport report = network_->report();
  if (const std::string problems = network_problems(report); !problems.empty()) {
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
  for (std::string& message : network_messages_since(network_->report(), since))
    if (read.kernel_messages.size() < kKernelMessagesMax)
      read.kernel_messages.push_back(std::move(message));
  return read;
}

}  // namespace muster::worker

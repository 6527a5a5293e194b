// The worker's reactions to GPU changes. Nothing here calls NVML.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <spdlog/spdlog.h>

#include "common/job/rank_evidence.h"
#include "worker/shell/worker.h"

namespace muster::worker {

void Worker::check_gpus() {
  const Instant now = monotonic_now();
  const GpuReport report = gpus_->report();
  const std::string silence = nvml_silence(report, now);
  if (std::exchange(gpus_are_silent_, !silence.empty()) != gpus_are_silent_) {
    if (silence.empty()) {
      spdlog::info("NVML answers again");
    } else {
      spdlog::error("{}", silence);
    }
  }
  if (report.changes == gpu_changes_) return;
  const auto news = std::min<uint64_t>(report.changes - gpu_changes_, report.events.size());
  for (size_t i = report.events.size() - news; i < report.events.size(); ++i)
    spdlog::warn("{}", report.events[i].text);
  gpu_changes_ = report.changes;
  GpusChanged changed;
  for (const GpuState& state : report.gpus) changed.problems.push_back(state.problem);
  pending_.emplace_back(std::move(changed));
}

NodeCheckDone Worker::with_gpus(NodeCheckDone done) const {
  const GpuReport report = gpus_->report();
  std::vector<std::string> why = missing_gpus_;
  if (std::string unfit = why_unfit(report, monotonic_now()); !unfit.empty())
    why.insert(why.begin(), std::move(unfit));
  if (launcher_.gpus().empty() && !report.gpus.empty())
    why.emplace_back("GPUs were found only after this worker was started; restart it");
  if (!why.empty()) {
    if (!done.passed) why.insert(why.begin(), done.sentence);
    done.passed = false;
    done.sentence = absl::StrJoin(why, "; ");
  }
  if (!report.gpus.empty())
    absl::StrAppend(&done.details, done.details.empty() ? "" : "; ", describe_gpus(report));
  return done;
}

StackResults Worker::with_gpus(StackResults read) const {
  std::vector<int32_t> gpus;
  for (const auto& [key, rank] : core_->ranks())
    if (key.launch() == read.launch) gpus = rank.launch->gpus;
  for (std::string& message :
       errors_since(gpus_->report(), gpus, Instant{}, monotonic_now()).messages) {
    if (read.kernel_messages.size() < kKernelMessagesMax)
      read.kernel_messages.push_back(std::move(message));
  }
  return read;
}

}  // namespace muster::worker

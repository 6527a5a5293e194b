#include "worker/core/rank.h"

#include <algorithm>
#include <bit>

#include <absl/strings/str_cat.h>

namespace muster::worker {
namespace {

bool is_asleep_or_running(char state) { return state == 'R' || state == 'S'; }

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace

std::string to_string(const LaunchKey& key) {
  return absl::StrCat("job ", key.job.value(), " attempt ", key.attempt.value());
}

std::string to_string(const RankKey& key) {
  return absl::StrCat(to_string(key.launch()), " rank ", key.rank.value());
}

std::vector<int32_t> Launch::gpus_of(int32_t local_rank) const {
  std::vector<int32_t> own;
  const int64_t stride = std::max(spec.ranks_per_node, 1);
  for (int64_t i = local_rank; local_rank >= 0 && i < std::ssize(gpus); i += stride)
    own.push_back(gpus[static_cast<size_t>(i)]);
  return own;
}

bool same_figures(const RankFigures& a, const RankFigures& b) {
  return a.phase == b.phase && a.step == b.step && same_bits(a.loss, b.loss) &&
         same_bits(a.grad_norm, b.grad_norm) && same_bits(a.learning_rate, b.learning_rate) &&
         same_bits(a.step_seconds, b.step_seconds) &&
         same_bits(a.data_wait_seconds, b.data_wait_seconds) && a.eval_step == b.eval_step &&
         same_bits(a.eval_loss, b.eval_loss) &&
         same_bits(a.tokens_per_second, b.tokens_per_second) &&
         same_bits(a.tflops_per_device, b.tflops_per_device) &&
         same_bits(a.device_peak_tflops, b.device_peak_tflops) &&
         a.checkpoint_step == b.checkpoint_step && a.checkpoints.saved == b.checkpoints.saved &&
         a.checkpoints.failed == b.checkpoints.failed &&
         a.checkpoints.on_request == b.checkpoints.on_request &&
         a.checkpoints.saving_mib == b.checkpoints.saving_mib &&
         a.checkpoints.written_mib == b.checkpoints.written_mib &&
         same_bits(a.checkpoints.seconds, b.checkpoints.seconds) &&
         same_bits(a.checkpoints.stall_seconds, b.checkpoints.stall_seconds) &&
         same_bits(a.collective_wait_seconds, b.collective_wait_seconds) && a.tokens == b.tokens &&
         a.step_times.counts == b.step_times.counts &&
         same_bits(a.step_times.seconds, b.step_times.seconds) && a.phase_start == b.phase_start &&
         a.last_progress == b.last_progress && a.stalled_links == b.stalled_links &&
         (a.process_state == b.process_state ||
          (is_asleep_or_running(a.process_state) && is_asleep_or_running(b.process_state)));
}

RankFigures figures_from_page(const ProgressPage& page) {
  RankFigures figures{.phase = page.phase,
                      .step = page.step,
                      .loss = page.loss,
                      .grad_norm = page.grad_norm,
                      .learning_rate = page.learning_rate,
                      .step_seconds = page.step_seconds,
                      .data_wait_seconds = page.data_wait_seconds,
                      .collective_wait_seconds = page.collective_wait_seconds,
                      .eval_step = page.eval_step,
                      .eval_loss = page.eval_loss,
                      .tflops_per_device = page.tflops_per_device,
                      .device_peak_tflops = page.device_peak_tflops,
                      .checkpoint_step = page.checkpoint_step,
                      .checkpoints = page.checkpoints,
                      .tokens = page.tokens,
                      .step_times = page.step_times,
                      .phase_start = instant_from_ns(page.phase_start_ns),
                      .last_progress = instant_from_ns(page.last_progress_ns)};
  // Both count since the attempt began, whereas `step` counts since the job began.
  const auto steps = static_cast<double>(page.step_times.total());
  if (steps > 0 && page.step_seconds > 0)
    figures.tokens_per_second = static_cast<double>(page.tokens) / steps / page.step_seconds;
  return figures;
}

}  // namespace muster::worker

#include "trainer_core/forecast/step_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

class ListSchedule {
 public:
  ListSchedule(const StepTrace& trace, const StepCost& cost) : trace_(trace), cost_(cost) {
    result_.pass_parts.resize(trace.passes.size());
    recomputes_whole_layers_ =
        cost.constants().whole_recomputation >= 0.5 &&
        std::ranges::any_of(trace.of(StepStream::kCompute), [](const TracedWork& work) {
          return work.kind == WorkKind::kGemm && work.phase == StepPhase::kRecompute;
        });
  }

  StepSchedule run() {
    const auto& computation = trace_.of(StepStream::kCompute);
    for (size_t i = 0; i < computation.size(); ++i) {
      while (pass_ + 1 < trace_.passes.size() && at(trace_.passes[pass_ + 1].begin) <= i)
        end_pass();
      if (!in_tail_ && at(trace_.tail) <= i) {
        if (!trace_.passes.empty()) end_pass();
        in_tail_ = true;
      }
      add(computation[i]);
    }
    if (!in_tail_ && !trace_.passes.empty()) end_pass();
    result_.end = now_;
    for (size_t stream = 1; stream < kStepStreams; ++stream) {
      advance(static_cast<StepStream>(stream), trace_.streams[stream].size());
      for (const WorkTime& time : result_.streams[stream])
        result_.end = std::max(result_.end, time.end);
    }
    return std::move(result_);
  }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  StepParts& parts() { return in_tail_ ? result_.tail_parts : result_.pass_parts[pass_]; }

  void end_pass() {
    complete_recomputation(-1);
    forward_layer_ = -1;
    result_.pass_ends.push_back(now_);
    if (pass_ + 1 < trace_.passes.size()) ++pass_;
  }

  std::string communication(const TracedWork& work) const {
    return absl::StrCat("communication: ", trace_.groups[at(work.group)].name);
  }

  // The end of the last work of the queue of a work.
  double& queue_end(StepStream stream, const TracedWork& work) {
    const bool one_queue = cost_.constants().one_queue >= 0.5;
    return queue_ends_[{stream, one_queue ? -1 : work.group}];
  }

  // Attributes the time from `now_` to `end`, in which the computation waits for a work of another
  // stream, to the works of the stream that run then.
  void blame(const WorkIndex& wait, double end) {
    const auto& times = result_.streams[static_cast<size_t>(wait.stream)];
    const auto& works = trace_.of(wait.stream);
    double rest = end - now_;
    result_.waited += rest;
    for (size_t i = at(wait.index) + 1; i-- > 0 && times[i].end > now_;) {
      const double ran = times[i].end - std::max(times[i].begin, now_);
      if (i != at(wait.index) && ran <= 0) continue;
      const double part = std::min(rest, ran);
      parts()[communication(works[i])] += part;
      rest -= part;
      if (cost_.constants().one_queue < 0.5) break;
    }
    if (rest > 0) parts()[communication(works[at(wait.index)])] += rest;
  }

  // Schedules the works of another stream up to `end`.
  void advance(StepStream stream, size_t end) {
    auto& times = result_.streams[static_cast<size_t>(stream)];
    const auto& works = trace_.of(stream);
    const auto& computed = result_.streams[0];
    while (times.size() < end) {
      const TracedWork& work = works[times.size()];
      double begin = queue_end(stream, work);
      if (work.after > 0) begin = std::max(begin, computed[at(work.after) - 1].end);
      double took = cost_.seconds(work, trace_);
      if (work.collective == CollectiveKind::kAllReduce)
        took *= 1 - cost_.constants().reduction_overlap;
      times.push_back({begin, begin + took});
      queue_end(stream, work) = begin + took;
      if (stream == StepStream::kOverlap || stream == StepStream::kRing) result_.concurrent += took;
    }
  }

  // Adds the part of a layer's forward pass that its recomputation omits, when the backward pass
  // reaches another layer: `layer`.
  void complete_recomputation(int32_t layer) {
    if (!recomputes_whole_layers_ || layer == backward_layer_) return;
    if (backward_layer_ >= 0) {
      const double rest =
          std::max(forward_seconds_[backward_layer_] - recomputed_seconds_[backward_layer_], 0.0);
      recomputed_seconds_[backward_layer_] = 0;
      parts()[kRecomputation] += rest;
      now_ += rest;
    }
    backward_layer_ = layer;
  }

  // Counts the time of a layer's forward pass and of its recomputation.
  void count_layer(const TracedWork& work, double took) {
    if (!recomputes_whole_layers_ || work.layer < 0) return;
    if (work.phase == StepPhase::kRecompute) recomputed_seconds_[work.layer] += took;
    if (work.phase != StepPhase::kForward) return;
    if (work.layer != forward_layer_) forward_seconds_[work.layer] = 0;
    forward_layer_ = work.layer;
    forward_seconds_[work.layer] += took;
  }

  void add(const TracedWork& work) {
    const bool is_backward =
        work.phase == StepPhase::kRecompute || work.phase == StepPhase::kBackward;
    complete_recomputation(is_backward ? work.layer : -1);
    double begin = now_;
    const WorkIndex* last = nullptr;
    for (const WorkIndex& wait : work.waits) {
      advance(wait.stream, at(wait.index) + 1);
      const double end = result_.streams[static_cast<size_t>(wait.stream)][at(wait.index)].end;
      if (end <= begin) continue;
      begin = end;
      last = &wait;
    }
    if (last != nullptr) blame(*last, begin);
    double took = cost_.seconds(work, trace_);
    if (work.kind == WorkKind::kCollective) {
      took *= 1 - cost_.constants().inline_overlap;
      parts()[communication(work)] += took;
    } else {
      account(work, took);
      took += cost_.gap_seconds();
    }
    count_layer(work, took);
    now_ = begin + took;
    result_.streams[0].push_back({begin, now_});
  }

  void account(const TracedWork& work, double took) {
    parts()[kGaps] += cost_.gap_seconds();
    if (work.phase == StepPhase::kUpdate) {
      parts()[kUpdatePart] += took;
    } else if (work.phase == StepPhase::kRecompute && work.kind != WorkKind::kHostCopy) {
      parts()[kRecomputation] += took;
    } else if (work.kind == WorkKind::kGemm) {
      const double ideal = cost_.ideal_seconds(work);
      parts()[kIdealGemms] += ideal;
      parts()[kGemmLoss] += took - ideal;
    } else if (work.kind == WorkKind::kAttention) {
      parts()[kAttentionPart] += took;
    } else {
      parts()[work.kind == WorkKind::kHostCopy ? kOffloading : kMemoryKernels] += took;
    }
  }

  const StepTrace& trace_;
  const StepCost& cost_;
  StepSchedule result_;
  std::map<std::pair<StepStream, int32_t>, double> queue_ends_;
  double now_ = 0;  // end of the last work of the computation
  size_t pass_ = 0;
  bool in_tail_ = false;

  // Only if recomputes_whole_layers_: seconds by layer, and the layer of the last work.
  bool recomputes_whole_layers_ = false;
  std::map<int32_t, double> forward_seconds_, recomputed_seconds_;
  int32_t forward_layer_ = -1, backward_layer_ = -1;
};

}  // namespace

StepSchedule schedule_step(const StepTrace& trace, const StepCost& cost) {
  return ListSchedule(trace, cost).run();
}

}  // namespace muster::trainer

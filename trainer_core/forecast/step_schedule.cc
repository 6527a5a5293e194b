#include "trainer_core/forecast/step_schedule.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

class ListSchedule {
 public:
  ListSchedule(const StepTrace& trace, const StepCost& cost) : trace_(trace), cost_(cost) {
    result_.pass_parts.resize(trace.passes.size());
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
      if (!result_.streams[stream].empty())
        result_.end = std::max(result_.end, result_.streams[stream].back().end);
    }
    return std::move(result_);
  }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  StepParts& parts() { return in_tail_ ? result_.tail_parts : result_.pass_parts[pass_]; }

  void end_pass() {
    result_.pass_ends.push_back(now_);
    if (pass_ + 1 < trace_.passes.size()) ++pass_;
  }

  std::string communication(const TracedWork& work) const {
    return absl::StrCat("communication: ", trace_.groups[at(work.group)].name);
  }

  // Schedules the works of another stream up to `end`.
  void advance(StepStream stream, size_t end) {
    auto& times = result_.streams[static_cast<size_t>(stream)];
    const auto& works = trace_.of(stream);
    const auto& computed = result_.streams[0];
    while (times.size() < end) {
      const TracedWork& work = works[times.size()];
      double begin = times.empty() ? 0 : times.back().end;
      if (work.after > 0) begin = std::max(begin, computed[at(work.after) - 1].end);
      const double took = cost_.seconds(work, trace_);
      times.push_back({begin, begin + took});
      if (stream == StepStream::kOverlap || stream == StepStream::kRing)
        result_.concurrent += took;
    }
  }

  void add(const TracedWork& work) {
    double begin = now_;
    const TracedWork* last = nullptr;
    for (const WorkIndex& wait : work.waits) {
      advance(wait.stream, at(wait.index) + 1);
      const double end = result_.streams[static_cast<size_t>(wait.stream)][at(wait.index)].end;
      if (end <= begin) continue;
      begin = end;
      last = &trace_.of(wait.stream)[at(wait.index)];
    }
    if (last != nullptr) {
      parts()[communication(*last)] += begin - now_;
      result_.waited += begin - now_;
    }
    double took = cost_.seconds(work, trace_);
    if (work.kind == WorkKind::kCollective) {
      took *= 1 - cost_.constants().inline_overlap;
      parts()[communication(work)] += took;
    } else {
      account(work, took);
      took += cost_.gap_seconds();
    }
    now_ = begin + took;
    result_.streams[0].push_back({begin, now_});
  }

  void account(const TracedWork& work, double took) {
    parts()[kGaps] += cost_.gap_seconds();
    if (work.phase == StepPhase::kUpdate) {
      parts()[kOptimizer] += took;
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
  double now_ = 0;  // end of the last work of the computation
  size_t pass_ = 0;
  bool in_tail_ = false;
};

}  // namespace

StepSchedule schedule_step(const StepTrace& trace, const StepCost& cost) {
  return ListSchedule(trace, cost).run();
}

}  // namespace muster::trainer

// Whether a job stands still: one attempt's ranks against what the job itself has shown that it
// takes. Pure.
//
// A job makes progress as long as any of its ranks does, because a rank that waits for a slow one
// stands still, too. It is suspicious when nobody has made any for longer than what its ranks are
// doing may take:
//
//   DATA, STEP     the floor, or `steps` times the longest of its last steps; before it has made
//                  some, the budget of first steps
//   EVAL, CHECKPOINT_…  the phase's budget, or three times the longest that was seen
//   the others     the phase's budget
//
// and of all ranks the one with the largest allowance counts: it excuses those that wait for it. A
// rank can also move without getting on, when a thread beside the computation (a checkpoint being
// written) does: so while all ranks train, the time since the last completed step counts as well.
//
// A program that is not ours may report nothing, or collectives alone: until a rank of it reports
// its phase, that rank is silent. It neither excuses nor is waited for. Where all are silent,
// nothing is suspicious unless its owner has said how long it may show no sign of life.
//
// A suspicion is cheap; its consequence is decided by sampling stacks. double_patience() is for
// when that finds the job slow: it doubles the allowance until steps are completed again.
//
// Memory grows with the ranks, observe() and due() do not. One thread at a time. Instants are of
// the coordinator's clock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/progress_page.h"
#include "common/time.h"
#include "coordinator/core/hang/hang_budgets.h"

namespace muster::coordinator {

class HangDetector {
 public:
  // The contents of a rank's page.
  struct Sample {
    Phase phase = Phase::kInit;
    Instant phase_start{};
    Instant last_progress{};
    int64_t step = -1;        // steps completed, of the job
    double step_seconds = 0;  // of the last one
    uint64_t steps = 0;       // completed since the attempt began …
    double seconds = 0;       // … and what they took
  };

  enum class Speech { kFromTheStart, kPerhapsLater };  // of our trainer; of other programs
  // `silence_max`: how long all ranks may show no sign of life while none has said what it does;
  // zero: for ever. Before the first sign they have the budget of first steps: interpreters and
  // libraries load in silence.
  HangDetector(const HangBudgets& budgets, size_t ranks, Instant now,
               Speech speech = Speech::kFromTheStart, Duration silence_max = Duration::zero());

  void observe(size_t rank, const Sample& sample, Instant now);
  // Corrects a rank by a dump, which may be newer than its heartbeats, or older: another phase, a
  // further step. Dump timestamps do not count as progress.
  void correct(size_t rank, Phase phase, Duration phase_age, int64_t step, Instant now);
  // It has ended, and neither excuses nor is waited for.
  void forget(size_t rank);
  // Excludes time in which the coordinator received nothing.
  void excuse(Duration time);
  // Its stacks and pages have shown that it makes progress, before its heartbeats do.
  void make_progress(Instant now);
  // It was found slow and not stuck, and gets twice the time. False: nobody is given more.
  bool double_patience();

  // The job is suspicious from then on, unless something moves before; kNever while it is silent,
  // and may be.
  static constexpr Instant kNever = Instant::max();
  Instant due() const;
  // Some ranks have not ended, and none of them says what it does.
  bool is_silent() const;
  Instant last_progress() const { return progress_; }
  int64_t newest_step() const { return seen_; }
  // The last step or change of phase, which nothing beside the computation can make.
  Instant last_step_or_phase() const { return foreground_; }
  // How long nothing may move before it is suspicious.
  Duration patience() const;
  // How long nothing is seen to move in a usual step: some programs report their steps alone. Zero
  // before steps are known, and while a rank is in another phase.
  Duration usual_silence() const;
  // Steps are completed, and more than one since `then`: nobody who takes part in them is gone
  // since. One that is overdue says that they are not; of one that is completed some rank reports
  // within `news`.
  bool goes_on_since(Instant then, Duration news, Instant now) const;
  // "no rank has made progress for 2.1 s; its steps take 0.4 s". For people.
  std::string reason(Instant now) const;

 private:
  static constexpr size_t kPhases = kPhaseNames.size();
  struct Rank {
    Phase phase = Phase::kInit;
    bool ended = false;
    bool silent = false;
    Instant phase_start{};
    int64_t step = -1;
    uint64_t steps = 0;
    double seconds = 0;
  };

  bool stays_silent(Rank& rank, const Sample& sample);
  void observe_silent(Instant sign_of_life, Instant now);
  void learn_step(Rank& rank, const Sample& sample);
  void learn_silence(Instant progress);
  void see_step(int64_t step, Instant now);
  void change_phase(Rank& rank, const Sample& sample);
  bool trains() const;  // all ranks are in DATA or STEP
  bool knows_steps() const;
  Duration longest_step() const;
  Duration allowance(Phase phase) const;
  Duration allowance() const;

  HangBudgets budgets_;
  Duration silence_max_;
  bool shows_life_ = false;
  std::vector<Rank> ranks_;
  std::array<int32_t, kPhases> in_phase_{};  // ranks that have not ended and are not silent
  int32_t silent_ = 0;                       // that have not ended
  std::array<Duration, kPhases> longest_phase_{};
  Instant progress_;
  Instant foreground_;
  int64_t seen_ = -1;                // the newest step, of an earlier attempt perhaps …
  int64_t step_ = -1;                // … and that of which is known what it took
  int64_t paused_ = -2;              // that step when a rank was last seen in another phase
  uint64_t steps_ = 0;               // that some rank has completed in this attempt
  std::deque<double> step_seconds_;  // of the last ones, the fastest rank's
  Duration silence_{};               // the longest in this step …
  std::deque<Duration> silences_;    // … and in the last ones
  int32_t patience_ = 1;             // times the allowance
};

}  // namespace muster::coordinator

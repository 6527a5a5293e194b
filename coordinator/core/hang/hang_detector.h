// Detects that a job stands still: compares the time without progress with the times that the job
// itself has shown to need. Pure.
//
// A job makes progress as long as any of its ranks does, because a rank that waits for a slow one
// stands still, too. A job is suspect when no rank has made progress for longer than the current
// activity may take:
//
//   DATA, STEP          the floor, or `steps` times the longest of its last steps; before steps are
//                       known, the budget of first steps
//   EVAL, CHECKPOINT_…  three times its longest duration so far, and at least a minute; at least
//                       the phase's budget until two were completed
//   other phases        the phase's budget
//
// The rank with the largest allowance decides, because the other ranks may wait for it. A
// background thread (such as one that writes a checkpoint) can also show progress without any step
// being completed. Therefore, while all ranks train, the time since the last completed step counts
// as well.
//
// A user program may report nothing, or only collectives. A rank is silent until it reports its
// first phase; a silent rank neither extends the allowance nor counts as standing still. If all
// ranks are silent, the job is suspect only after the limit that its owner has set, if any.
//
// No phase excuses a proof. If a rank is stopped or dead, the job is suspect after the time
// HangBudgets::probe without progress in any phase. After the same time next_probe() requests a
// probe of the collectives, since ranks that wait for each other cannot continue either.
//
// A step counter that falls while steps are completed is a rollback: the program has returned to an
// earlier state, and its steps count as progress again.
//
// A suspicion costs little, because samples of stacks decide its consequence. If the samples show
// that the job is only slow, double_patience() doubles the allowance until steps are completed
// again.
//
// Memory is O(ranks); observe() and due() take O(1). Called on one thread at a time. Instants use
// the coordinator's clock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "coordinator/core/hang/hang_budgets.h"

namespace muster::coordinator {

class HangDetector {
 public:
  // The input from a rank's progress page.
  struct Sample {
    Phase phase = Phase::kInit;
    Instant phase_start{};
    Instant last_progress{};
    int64_t step = -1;        // steps completed by the job
    double step_seconds = 0;  // time of the last step
    uint64_t steps = 0;       // steps completed since the attempt began
    double seconds = 0;       // total time of `steps`
    bool halted = false;      // its process is stopped or dead
  };

  // The time from which ranks report their phases: from the start (the built-in trainer), or
  // perhaps later or never (user programs).
  enum class PhaseReports { kFromTheStart, kLaterOrNever };
  // `silence_max`: the maximum silence after the first sign of life, while no rank has reported a
  // phase; zero: no limit. Before the first sign of life, the budget of first steps applies,
  // because interpreters and libraries load silently.
  HangDetector(const HangBudgets& budgets, size_t ranks, Instant now,
               PhaseReports speech = PhaseReports::kFromTheStart,
               Duration silence_max = Duration::zero());

  // Records a rank's progress page from a heartbeat.
  void observe(size_t rank, const Sample& sample, Instant now);
  // Updates a rank from a dump, which may be newer or older than its heartbeats: another phase, a
  // further step. Dump timestamps do not count as progress.
  void correct(size_t rank, Phase phase, Duration phase_age, int64_t step, Instant now);
  // Removes a rank that has ended: the rank no longer affects the allowance, and no rank waits for
  // it.
  void forget(size_t rank);
  // Excludes coordinator downtime, in which nothing was received.
  void excuse(Duration time);
  // Records progress at `now` that a dump has shown before a heartbeat does.
  void record_progress(Instant now);
  // Doubles the allowance, because the job was slow and not stuck. Returns false if the allowance
  // has its maximum.
  bool double_patience();

  // Returns the time at which the job becomes suspect if it makes no progress before; kNever for a
  // silent job without a limit.
  static constexpr Instant kNever = Instant::max();
  Instant due() const;
  // Returns due() without proofs: the time at which the budgets are used up.
  Instant due_by_time() const;
  // Returns the time of the next probe of a job without progress whose budgets are not used up.
  // kNever for a silent job, whose pages show nothing.
  Instant next_probe() const;
  // Records the result of a probe. If it proves that the job cannot continue, the job is suspect
  // until it makes progress. Otherwise the next probe follows after twice the time.
  void conclude_probe(bool proves, Instant now);
  // Withdraws the proof, because newer evidence contradicts it.
  void withdraw_proof(Instant now);
  // Returns whether some ranks have not ended and none of them has reported a phase.
  bool is_silent() const;
  // Returns whether some rank that has not ended is stopped or dead.
  bool has_halted_ranks() const { return halted_ > 0; }
  Instant last_progress() const { return progress_; }
  int64_t newest_step() const { return seen_; }
  // Returns the time of the last completed step or change of phase. Background threads cannot cause
  // either of them.
  Instant last_step_or_phase() const { return foreground_; }
  // Returns the longest time without progress before the job is suspect.
  Duration patience() const;
  // Returns the longest time without progress between steps after the first ones. A program may
  // evaluate or save without reporting it, and is likely to pause for as long again.
  Duration longest_pause() const { return longest_pause_; }
  // Returns the longest of the last steps. Returns zero before steps are known, and while a rank is
  // in another phase.
  Duration step_time() const;
  // Returns the longest time without visible progress within a usual step, because some programs
  // report only completed steps. Returns zero before steps are known, and while a rank is in
  // another phase.
  Duration usual_silence() const;
  // Returns whether more than one step was completed since `then`, which shows that no rank was
  // lost after `then`. False if a step is overdue. `news`: the time within which some rank reports
  // a completed step.
  bool completed_steps_since(Instant then, Duration news, Instant now) const;
  // Describes the standstill for users: "no rank has made progress for 2.1 s; its steps take 0.4
  // s".
  std::string reason(Instant now) const;

 private:
  static constexpr size_t kPhases = kPhaseNames.size();
  struct Rank {
    Phase phase = Phase::kInit;
    bool ended = false;
    bool silent = false;
    bool halted = false;
    Instant phase_start{};
    int64_t step = -1;
    uint64_t steps = 0;
    double seconds = 0;
  };
  // The activities of the job in one phase. An activity lasts from the first rank that enters the
  // phase until the last one leaves it. All of them at the same step count as one, because ranks
  // may enter the phase one after the other.
  struct PhaseTimes {
    int32_t count = 0;  // includes the current one
    int64_t step = -1;  // the newest step at the beginning of the current or last one
    Instant began{};    // the beginning of that one
    Duration longest{};
  };

  bool stays_silent(Rank& rank, const Sample& sample);
  void observe_silent(Instant sign_of_life, Instant now);
  void learn_step(Rank& rank, const Sample& sample);
  void learn_silence(Instant progress);
  void see_step(int64_t step, Instant now);
  void roll_back(int64_t step, Instant now);
  void change_phase(Rank& rank, const Sample& sample);
  bool trains() const;  // all ranks are in DATA or STEP
  bool has_step_times() const;
  bool has_proof() const;
  Instant proof_due() const;
  Duration longest_step() const;
  Duration allowance(Phase phase) const;
  Duration allowance() const;

  HangBudgets budgets_;
  Duration silence_max_;
  bool shows_life_ = false;
  std::vector<Rank> ranks_;
  std::array<int32_t, kPhases> in_phase_{};  // ranks that have not ended and are not silent
  int32_t silent_ = 0;                       // silent ranks that have not ended
  int32_t halted_ = 0;                       // halted ranks that have not ended
  Instant halted_since_{};                   // the time since which some rank is halted
  // The time of the probe that proved a hang. It counts until later progress.
  std::optional<Instant> proof_;
  // The last progress at the time of the newest probe, and the standstill until the next one.
  Instant probed_at_{};
  Duration probe_after_{};
  std::array<PhaseTimes, kPhases> phase_times_{};
  Instant progress_;
  Instant foreground_;
  // The newest step, which an earlier attempt may have made.
  int64_t seen_ = -1;
  // The newest step with a known duration.
  int64_t step_ = -1;
  // The value of step_ when a rank was last seen in another phase.
  int64_t paused_ = -2;
  // The largest number of steps that a rank has completed in this attempt.
  uint64_t steps_ = 0;
  // Times of the last steps, each of the fastest rank.
  std::deque<double> step_seconds_;
  // The longest silence in this step.
  Duration silence_{};
  Duration longest_pause_{};
  // The longest silence in each of the last steps.
  std::deque<Duration> silences_;
  int32_t patience_ = 1;  // multiplies the allowance
};

}  // namespace muster::coordinator

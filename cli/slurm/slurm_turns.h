// A Slurm job's turns: each ends by its time limit, for others, or for want of nodes, and asks for the next one. Slurm requeues what it
// kills for others and what a dead node took, and nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// Turns in a row that came no further, of which none brings the job to its end: Slurm would go on with them for ever.
constexpr int32_t kFruitlessTurnsMax = 5;

// All turns of a job, unless --max-turns says otherwise: of a program that tells nothing, and of a fleet, nobody knows whether one was fruitful.
constexpr int32_t kTurnsDefault = 100;
constexpr int32_t kTurnsMax = 1'000'000;

// What is kept of a job's turns, for the next one.
struct TurnRecord {
  std::string job{};      // Slurm's, of a chain the array; another one begins anew
  int64_t step = -1;      // the highest that any turn has completed
  int32_t fruitless = 0;  // turns in a row, up to the last one, that came no further
  int32_t turns = 0;      // all of them
};
struct Turn {
  std::string job{};   // as in the record
  int64_t step = -1;   // the highest that is known of it
  Duration lasted{};   // until it was told to leave
  bool counts = true;  // it tells steps: the trainer. A program may tell none
};
// With one more turn. Of a program that has told no step in any turn, one that is over at once is fruitless. Pure.
TurnRecord with_turn(const TurnRecord& before, const Turn& turn);

// What to say when the ranks took `took` of the `lead` that SIGUSR1 came before the time limit; empty when that is plenty. `saved`: they
// were through by then. Pure.
std::string lead_advice(int64_t lead_seconds, int64_t took_seconds, bool saved);

// Who says what a turn's exit code means: 2 of a job is bad input, and of a node perhaps a file system that is not mounted there.
enum class Verdict { kNone, kOfTheJob, kOfTheInput, kOfItsTurns };
struct TurnEnd {
  int exit_code = 0;
  Verdict verdict = Verdict::kNone;
};
// Of a chain that is through, or that no other turn can help. Pure.
bool ends_chain(const TurnEnd& end);

// Where a job's next turn comes from.
enum class TurnsBy { kNobody, kRequeue, kChain };

// Of one thread.
class NextTurn {
 public:
  // `record_path`: TurnRecord's file. `turns_max`: of the job, or the chain, all together.
  NextTurn(const SlurmJob& job, std::string record_path, TurnsBy by, int32_t turns_max)
      : job_(job), record_path_(std::move(record_path)), by_(by), turns_max_(turns_max) {}

  // Asks Slurm for it, once, and again only where that has failed; nothing where none is wanted, too many were fruitless, or there were too many.
  // Of a chain, whose next task waits already, it counts this turn.
  void ask(const Turn& turn);
  // No other is to follow: too many were fruitless, or there were too many.
  bool was_last() const { return was_last_; }
  // What came of it: "is queued again …"; empty before ask().
  const std::string& outcome() const { return outcome_; }

 private:
  void count(Turn turn);

  const SlurmJob& job_;
  const std::string record_path_;
  const TurnsBy by_;
  const int32_t turns_max_;
  bool is_settled_ = false, was_last_ = false;
  std::string outcome_;
  std::string remark_;  // of the turns so far
};

}  // namespace muster::cli

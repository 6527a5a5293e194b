// How a rank leaves its training before the end, and how ranks that share a model do it together, with one state saved.
//
// What a checkpoint holds (parameters, optimizer state, position in the data) changes in *turns*: a step is completed, a batch is
// passed over, a rollback. All ranks take the same turns in the same order, each behind a collective of all of them: nobody takes
// turn n + 1 before everybody has taken turn n, but for the moment in which some have and some are about to.
//
//      at n                                   taking turn n + 1                      at n + 1
//   ── passes, sums of the step ──│── update (sums of Adafactor, norm) ──│── evaluation, saves, next passes ──▶
//
// One thread leaves for the rank: its loop, when the ranks have voted or the run is over, or its signal thread, when a step takes
// too long for that (stop_signals.h). Whoever it is on the other ranks, the threads meet:
//
//   claim() ─▶ hold: the loop begins no more turns; one that it is taking is as good as taken: it waits for nobody but other turns
//           ─▶ tell: each rank says its turn; the target is the highest
//           ─▶ reach: who is behind lets its loop take turns up to the target. It can: a rank that is ahead has had the sums of all
//           ─▶ all are there: all save the state of that turn │ one is not, whose loop has failed: nobody saves, and all say who
//
// So what is saved is of one turn, and a rank that holds the state still never keeps another from the sums that it waits for.
//
// A rank that was asked alone, or whose peer hangs, waits in "tell" for who does not come. It gives up there (kPeersWait,
// stop_signals.h), and its end tells those that were not asked. Once all have told, nobody gives up: what is waited for then is work
// that goes on, a turn or a save, and who has asked kills who takes too long. A rank that has nothing to save does not meet the
// others: it stays for the turn that they may be taking, whose sums need it, and goes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint_peers.h"

namespace muster::trainer {

// Who takes turns, and who leaves: the loop's thread and the signal thread of one rank. Any thread.
class Leaving {
 public:
  enum class By { kLoop, kSignalThread };

  // The loop's: everybody's state is that of turn 0, which nobody needs to save.
  void start();
  bool started() const;
  // The loop's, before it joins the sums behind which a turn is: from now on others may be taking it.
  void expect_turn();
  // The loop's: the sums have told all ranks that no turn is behind them.
  void expect_no_turn();
  // The loop's: takes a turn, and waits while it is held. False: the signal thread has left for the rank meanwhile.
  bool begin_turn();
  // The loop's: the turn is taken.
  void end_turn();

  // Who leaves for the rank: the first who asks, and it stays so.
  bool claim(By by);
  // The loop's, where the signal thread leaves: it takes no more turns for `why`, and waits until the rank has left (tests; else for
  // the end of the process).
  void wait_until_left(const absl::Status& why);
  // The signal thread's: it is over.
  void left();

  // For who has claimed. The loop's turn in progress ends, or fails.
  void wait_for_turn();
  // The same with one that the loop expects, which it may take, and no other.
  void wait_for_expected_turn();
  // The turn that the rank is at, or will be. The loop begins no further one.
  int64_t hold();
  // Lets the loop take turns up to `turn` and waits for them. FailedPrecondition when it cannot, or what a lost peer is told by.
  absl::Status reach(int64_t turn);

  // For who has claimed: it begins to wait for its peers, and they have all come. False: the rank has given up.
  void wait_for_peers();
  bool peers_are_there();
  // Any thread's. False where no peers are waited for, or all have come. Else the rank is as good as gone: nothing is saved any more.
  bool give_up();
  bool has_given_up() const;

 private:
  // kAlone ──wait_for_peers()──▶ kWaits ──peers_are_there()──▶ kTogether
  //                                └──give_up()──▶ kGivenUp
  enum class Meeting { kAlone, kWaits, kTogether, kGivenUp };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  int64_t turns_ = 0;                                        // taken
  bool expects_turn_ = false;                                // from expect_turn() to begin_turn()
  bool in_turn_ = false;                                     // since begin_turn()
  int64_t turns_max_ = std::numeric_limits<int64_t>::max();  // that may be begun
  bool over_ = false;                                        // the loop takes no more turns
  absl::Status why_over_;
  bool left_ = false;
  bool claimed_ = false;
  By by_ = By::kLoop;
  Meeting meeting_ = Meeting::kAlone;
};

// Brings the ranks that save together to one turn, by the thread that has claimed on each of them; null: the rank is alone. Says whether
// any of them wants the state saved, the same on all. An error is the same on all that hear of it, names the rank, and means that
// nobody saves. Afterwards no turn is being taken.
absl::StatusOr<bool> leave_together(CheckpointPeers* peers, Leaving& leaving, bool wants_save);

// Of a rank that gives up.
constexpr char kPeersStayedAway[] =
    "not all ranks that save with it have come along in 3 s: leaves without a checkpoint of the "
    "last steps";

}  // namespace muster::trainer

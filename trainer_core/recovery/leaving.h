// Coordinates the early end of a training (leaving): on each rank, and among ranks that share a
// model, which must save the same state.
//
// The state that checkpoints save (parameters, optimizer state, position in the data) changes only
// in *commits*: a step is applied, a batch is skipped, or a rollback is made. All ranks make the
// same commits in the same order, each after a collective of all ranks. So no rank begins commit n
// + 1 before every rank has completed commit n, and two ranks differ by at most one commit.
//
//   after commit n                     during commit n + 1                after commit n + 1
//   ── passes, sums of the step ──│── update (sums of Adafactor, norm) ──│── evaluation, saves ──▶
//
// On each rank, one thread saves and ends the process. It is the thread of the training loop if the
// ranks have voted to stop or the run is over. It is the signal thread if a step takes too long
// (stop_signals.h). This thread claims the leaving. The claiming threads of all ranks then do the
// following together:
//
//   claim()
//     ─▶ hold: the loop must not begin further commits. A commit in progress counts as made, since
//        it waits only for the same commit on other ranks.
//     ─▶ gather: the ranks exchange the numbers of their commits; the highest is the target.
//     ─▶ reach: a rank below the target lets its loop make the commit. This cannot block, because a
//        rank at the target has already received the sums of all ranks.
//     ─▶ All ranks are at the target and save this state. If a loop has failed, no rank saves, and
//        all report the failed rank.
//
// So all saved shards are those of the same commit, and a rank that holds its loop never withholds
// sums for which another rank waits.
//
// If only one rank was requested to stop, or if a peer hangs, "gather" does not complete. The
// waiting rank then gives up (kPeersWait, stop_signals.h), and its exit makes the others end. Once
// all ranks have sent the numbers of their commits, no rank gives up any more. The ranks then wait
// only for a commit or a save that is in progress; if a rank takes too long, the sender of the
// signal kills it. A rank that has nothing to save does not take part in this. It completes the
// commit that the others may be making, because they need its sums, and exits. It sends no sums of
// a later commit, which the others would otherwise begin.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint_peers.h"

namespace muster::trainer {

// The state that the loop's thread and the signal thread of a rank share. Thread-safe.
class Leaving {
 public:
  // The thread that claims the leaving.
  enum class By { kLoop, kSignalThread };

  // Begins the training with commit 0, whose state needs no save. Called by the loop only.
  void start();
  bool started() const;
  // Announces a commit. Called by the loop only, before the sums that precede the commit, because
  // other ranks may make it from then on. Blocks after the last commit of
  // wait_for_expected_commit(), because a rank that leaves must not contribute to a later one.
  // Returns false if the rank has left meanwhile.
  bool expect_commit();
  // Withdraws expect_commit(). Called by the loop only, if the sums have shown to all ranks that no
  // commit follows.
  void expect_no_commit();
  // Begins a commit. Blocks while commits are held. Returns false if the rank has left meanwhile.
  // Called by the loop only.
  bool begin_commit();
  // Ends the commit. Called by the loop only.
  void end_commit();

  // Claims the right to save and end the process for a thread. Returns whether `by` has this right,
  // which the first caller gets permanently.
  bool claim(By by);
  // Ends the loop because of `why` if the signal thread has claimed: blocks until left() in tests,
  // otherwise until the process ends. Called by the loop only.
  void wait_until_left(const absl::Status& why);
  // Reports that the rank has left. Called by the signal thread only.
  void left();

  // The next six functions are called by the claiming thread only.
  //
  // Blocks until the commit in progress ends or fails.
  void wait_for_commit();
  // Does the same, and also waits for a commit that the loop expects. The loop may make this
  // commit, but it neither makes nor announces a later one.
  void wait_for_expected_commit();
  // Holds the loop, so that it begins no further commit. Returns the number of the commit that the
  // rank has made or is making.
  int64_t hold();
  // Lets the loop make commits up to `commit`, and blocks until it has made them. If the loop has
  // failed, returns the code of its error if that is the loss of a peer, otherwise
  // FailedPrecondition.
  absl::Status reach(int64_t commit);

  // Begin and end the wait for peers. peers_are_present() returns false if the rank has given up
  // meanwhile.
  void wait_for_peers();
  bool peers_are_present();
  // Gives up the wait for peers, after which the rank must not save. Returns false if the rank does
  // not wait for peers. Called on any thread.
  bool give_up();
  bool has_given_up() const;

 private:
  // kAlone ──wait_for_peers()──▶ kWaits ──peers_are_present()──▶ kTogether
  //                                └──give_up()──▶ kGivenUp
  enum class Meeting { kAlone, kWaits, kTogether, kGivenUp };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  int64_t commits_ = 0;          // number of commits made
  bool expects_commit_ = false;  // from expect_commit() to begin_commit()
  bool in_commit_ = false;       // from begin_commit() to end_commit()
  // The last commit that the loop may make.
  int64_t commits_max_ = std::numeric_limits<int64_t>::max();
  bool waits_for_expected_ = false;  // set by wait_for_expected_commit()
  bool over_ = false;                // the loop has ended and makes no more commits
  absl::Status end_reason_;          // why the loop has ended
  bool left_ = false;
  bool claimed_ = false;
  By by_ = By::kLoop;
  Meeting meeting_ = Meeting::kAlone;
};

// Brings the ranks that save together to the same commit. Called by the claiming thread of each of
// these ranks; `peers` is null for a rank that saves alone. Returns whether any of the ranks
// requests a save (wants_save), which is the same on all ranks. An error means that no rank may
// save, and contains the failed rank. No commit is in progress when the call returns.
absl::StatusOr<bool> leave_together(CheckpointPeers* peers, Leaving& leaving, bool wants_save);

// The message that a rank prints when it gives up.
constexpr char kPeersStayedAway[] =
    "not all ranks that save with it have joined within 3 s: exiting without a checkpoint of the "
    "last steps";

}  // namespace muster::trainer

// Coordinates how a rank leaves its training early, and how ranks that share a model leave together
// with one saved state.
//
// The state that a checkpoint holds (parameters, optimizer state, position in the data) changes in
// *commits*: a step is applied, a batch is skipped, or a rollback is made. All ranks make the same
// commits in the same order, each after a collective of all of them. So no rank makes commit n + 1
// before every rank has made commit n; two ranks differ by at most the commit that is being made.
//
//      at n                                 making commit n + 1                      at n + 1
//   ── passes, sums of the step ──│── update (sums of Adafactor, norm) ──│── evaluation, saves ──▶
//
// One thread leaves for the rank: its loop, if the ranks have voted or the run is over, or its
// signal thread, if a step takes too long for that (stop_signals.h). The leaving threads of all
// ranks meet, whichever they are:
//
//   claim()
//     ─▶ hold: the loop begins no more commits. One in progress counts as made: it waits only for
//        the same commit of other ranks.
//     ─▶ gather: each rank sends its commit; the target is the highest.
//     ─▶ reach: a rank that is behind lets its loop proceed to the target. It can: a rank that is
//        ahead has the sums of all ranks.
//     ─▶ all have reached it: all save the state of that commit. If a loop has failed: no rank
//        saves, and all report that rank.
//
// So the saved state belongs to one commit, and a rank that holds its state never keeps another
// rank from the sums that it waits for.
//
// A rank that alone was asked to stop, or whose peer hangs, waits in "gather" for ranks that do not
// come. It gives up there (kPeersWait, stop_signals.h), and its exit signals the other ranks. Once
// all have sent their commits, no rank gives up: they then wait for work in progress, a commit or a
// save, and the sender of the signal kills a rank that takes too long. A rank that has nothing to
// save does not meet the others: it stays for the commit that they may be making, whose sums need
// it, and exits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint_peers.h"

namespace muster::trainer {

// The state shared by the loop's thread and the signal thread of one rank. Thread-safe.
class Leaving {
 public:
  enum class By { kLoop, kSignalThread };

  // Loop only. Starts with the state of commit 0 on all ranks, which needs no save.
  void start();
  bool started() const;
  // Loop only. Called before the sums that precede a commit: from now on other ranks may be making
  // it.
  void expect_commit();
  // Loop only. The sums have shown to all ranks that no commit follows.
  void expect_no_commit();
  // Loop only. Begins a commit; blocks while commits are held. False: the signal thread has left
  // for the rank in the meantime.
  bool begin_commit();
  // Loop only. Ends the commit.
  void end_commit();

  // Claims the leaving of the rank. Returns whether `by` has it: the first caller, permanently.
  bool claim(By by);
  // Loop only, if the signal thread leaves: makes no more commits, because of `why`, and blocks
  // until the rank has left (in tests; otherwise until the process ends).
  void wait_until_left(const absl::Status& why);
  // Signal thread only. The rank has left.
  void left();

  // The next four are called by the thread that has claimed.
  // Blocks until the loop's commit in progress ends or fails.
  void wait_for_commit();
  // Also waits for a commit that the loop expects. The loop may make that commit, but no later one.
  void wait_for_expected_commit();
  // Holds the loop: it begins no further commit. Returns the commit that the rank is at, or is
  // making.
  int64_t hold();
  // Lets the loop make commits up to `commit`, and blocks until it has. Returns FailedPrecondition
  // if the loop has failed, or the code of its lost peer.
  absl::Status reach(int64_t commit);

  // Called by the thread that has claimed: begins to wait for its peers; and all have come, which
  // returns false if the rank has given up in the meantime.
  void wait_for_peers();
  bool peers_are_present();
  // Any thread. Returns false if no peers are waited for, or all have come. Otherwise the rank
  // counts as gone: it saves nothing any more.
  bool give_up();
  bool has_given_up() const;

 private:
  // kAlone ──wait_for_peers()──▶ kWaits ──peers_are_present()──▶ kTogether
  //                                └──give_up()──▶ kGivenUp
  enum class Meeting { kAlone, kWaits, kTogether, kGivenUp };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  int64_t commits_ = 0;          // made
  bool expects_commit_ = false;  // from expect_commit() to begin_commit()
  bool in_commit_ = false;       // from begin_commit() to end_commit()
  // The commit that the loop may not exceed.
  int64_t commits_max_ = std::numeric_limits<int64_t>::max();
  bool over_ = false;  // the loop makes no more commits
  absl::Status end_reason_;
  bool left_ = false;
  bool claimed_ = false;
  By by_ = By::kLoop;
  Meeting meeting_ = Meeting::kAlone;
};

// Brings the ranks that save together to one commit. Called by the claiming thread on each of them;
// `peers` is null for a rank that saves alone. Returns whether any of them requests a save, the
// same on all. An error names the failed rank, is the same on all ranks that receive it, and means
// that no rank saves. Afterwards no commit is in progress.
absl::StatusOr<bool> leave_together(CheckpointPeers* peers, Leaving& leaving, bool wants_save);

// The message of a rank that gives up.
constexpr char kPeersStayedAway[] =
    "not all ranks that save with it have joined within 3 s: exiting without a checkpoint of the "
    "last steps";

}  // namespace muster::trainer

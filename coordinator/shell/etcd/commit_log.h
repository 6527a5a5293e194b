// Numbered commits of etcd's keys: each is stored completely or not at all, by the leader only, and
// in order. Used by one thread at a time.
//
// A commit is one transaction of etcd. A commit that is too large for a transaction is first
// written to keys of its own (staged); a transaction then makes it valid, and afterwards its parts
// move to their final keys. The leader that follows completes the move, or drops parts that did not
// become valid.
//
//   stage/<term>/<number>-<digest>/<part>   the operations of a part; empty once it has moved
//
// A member of etcd may execute a transaction long after its caller has repeated it at another one.
// So each transaction compares the leader's key and the newest commit, and the move of a part that
// the part has not moved: a late duplicate changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/shell/etcd/fenced_calls.h"
#include "coordinator/shell/etcd/key_changes.h"
#include "etcd/etcd.pb.h"
#include "etcd/state.pb.h"

namespace muster::coordinator {

class CommitLog {
 public:
  explicit CommitLog(FencedCalls& calls);

  // Reads the newest commit and completes it. Called once, before the other methods. Returns
  // DataLoss if a part of it is missing.
  absl::Status recover();
  // Returns whether there was a commit.
  bool has_commits() const { return last_.number() > 0; }

  // Stores the changes. OK: they are stored for good. ResourceExhausted: nothing is stored, or it
  // is stored and a repetition of the same commit finds it. Other errors: nothing is stored, or the
  // message states that it is unknown.
  absl::Status commit(const KeyChanges& changes);

  // Removes replaced and deleted values from etcd's history. Best effort: if it fails, it is
  // repeated after a later commit.
  void forget_history();

 private:
  std::string stage_key(const etcd_state::StoredCommit& commit, size_t part) const;
  absl::StatusOr<std::optional<std::string>> read(const std::string& key);
  void add_guard(etcdserverpb::TxnRequest& request) const;
  absl::StatusOr<bool> execute(etcdserverpb::TxnRequest request, const std::string& value,
                               std::string_view doubt = {});
  absl::Status stage(const etcd_state::StoredCommit& commit,
                     const std::vector<etcdserverpb::TxnRequest>& parts);
  absl::Status move(size_t part);
  absl::Status finish_stage();
  absl::Status drop_earlier_stages();
  absl::Status store(const etcd_state::StoredCommit& next, const std::string& value,
                     const std::vector<etcdserverpb::TxnRequest>& parts);
  void limit_history(const std::vector<etcdserverpb::TxnRequest>& parts);

  FencedCalls& calls_;
  const std::string commit_key_;
  const std::string stage_prefix_;
  etcd_state::StoredCommit last_;  // staged() > 0: not all of its parts have moved
  std::string last_value_;         // the value of commit_key_; empty: it does not exist
  // The value for commit_key_ of a commit that has failed; whether it is stored may be unknown.
  std::string doubtful_value_;
  // Since the history was removed.
  int commits_ = 0;
  size_t bytes_ = 0;
  Instant compact_from_{};  // no compaction is tried earlier
};

}  // namespace muster::coordinator

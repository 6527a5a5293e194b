// Numbered commits of etcd's keys: each is stored completely or not at all, by the leader only, and
// in order. Used by one thread at a time.
//
// A commit is one transaction of etcd, which compares the leader's key and the number of the
// commit before it. A commit that is too large for a transaction is first written to keys of its
// own (staged); the transaction then makes it valid, and afterwards the parts move to their final
// keys. The leader that follows completes the move, or drops parts that did not become valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/shell/etcd/fenced_calls.h"
#include "coordinator/shell/etcd/key_changes.h"
#include "etcd/etcd.pb.h"
#include "etcd/state.pb.h"

namespace muster::coordinator {

class CommitLog {
 public:
  explicit CommitLog(FencedCalls& calls);

  // Reads the newest commit and completes it. Called once, before the other methods.
  absl::Status recover();
  // Returns whether there was a commit.
  bool has_commits() const { return last_.number() > 0; }

  // Stores the changes. OK: they are stored for good. ResourceExhausted: nothing is stored, or it
  // is stored and a repetition of the same commit finds it. Other errors: nothing is stored, or the
  // message states that it is unknown.
  absl::Status commit(const KeyChanges& changes);

  // Removes replaced and deleted values from etcd's history. Best effort: if it fails, it is
  // repeated after the next commit.
  void forget_history();

 private:
  std::string stage_key(uint64_t number, size_t part) const;
  absl::StatusOr<std::string> read(const std::string& key);
  absl::Status stage(uint64_t number, const std::vector<etcdserverpb::TxnRequest>& parts);
  absl::Status make_valid(etcdserverpb::TxnRequest request, const std::string& value);
  absl::Status finish_stage();
  void limit_history(const std::vector<etcdserverpb::TxnRequest>& parts);

  FencedCalls& calls_;
  const std::string commit_key_;
  const std::string stage_prefix_;
  etcd_state::StoredCommit last_;
  std::string last_value_;  // the value of commit_key_; empty: it does not exist
  bool is_staged_ = false;  // parts of last_ have not moved yet
  // Since the history was removed.
  int commits_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster::coordinator

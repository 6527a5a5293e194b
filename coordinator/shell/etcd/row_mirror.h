// The copy of the SQLite file's rows in etcd. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include "coordinator/shell/etcd/commit_log.h"
#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/fenced_calls.h"
#include "coordinator/shell/etcd/key_changes.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/storage/sqlite_rows.h"

namespace muster::coordinator {

// Replaces the database `to`, which no program uses, by `from`.
absl::Status replace_database(const std::string& from, const std::string& to);

// The keys and values of the schema and of all rows.
using StoredKeys = std::map<std::string, std::string>;

class RowMirror final : public ChangeSink {
 public:
  // Requires that `client` and `lease` outlive this object.
  RowMirror(EtcdClient& client, const LeaderLease& lease);

  // Completes what an earlier leader has begun. Called once, before the other methods.
  absl::Status recover() { return log_.recover(); }
  // Returns whether etcd has no state under this prefix.
  bool is_empty() const { return !log_.has_commits(); }

  // Returns the row of a table with this primary key; nullopt: there is none. Requires that it is
  // no large row.
  absl::StatusOr<std::optional<SqliteRow>> row(std::string_view table, const SqliteRow& key);
  // Creates the file `path` from the rows in etcd, replaces an existing one, and returns what etcd
  // has. Without a state, there is no file afterwards. Returns FailedPrecondition if a newer
  // version wrote the rows, DataLoss if they contradict each other, Aborted if they could not be
  // read for a minute.
  absl::StatusOr<StoredKeys> build_file(const std::string& path);
  // Makes the schema and the rows in etcd those of `db`. `stored`: what etcd has.
  absl::Status store_all(SqliteDatabase& db, StoredKeys stored);

  absl::Status store(const std::vector<RowChange>& changes) override;
  void forget_history() override { log_.forget_history(); }

 private:
  absl::StatusOr<etcdserverpb::RangeResponse> read_page(etcdserverpb::RangeRequest& request);
  absl::StatusOr<StoredKeys> read_keys();
  absl::Status check_schema(const StoredKeys& stored) const;
  absl::Status fill(SqliteDatabase& db, const StoredKeys& stored) const;
  absl::Status commit(const KeyChanges& changes, const std::map<std::string, size_t>& parts);
  absl::Status unreadable(const std::string& key, absl::string_view why) const;

  FencedCalls calls_;
  CommitLog log_;
  const std::string schema_key_;
  const std::string rows_prefix_;
  // The number of parts of each row that has several, by its key.
  std::map<std::string, size_t> parts_;
};

}  // namespace muster::coordinator

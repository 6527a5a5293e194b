// The replicated storage: the state of sqlite_storage.h, mirrored to etcd.
//
// The SQLite file is the leader's copy for reading. At each commit its changed rows go to etcd in
// one transaction that etcd applies only if this coordinator still leads; after that the file's
// transaction commits. A coordinator that is elected builds the file again from etcd, so all
// coordinators have one state, one store id and increasing epochs. Logs of ranks, the audit log and
// the history of the page stay on the machine that wrote them.
//
//   <prefix>/leader                     the leader's addresses, attached to its lease
//   <prefix>/schema                     version and tables (mirror_schema.h)
//   <prefix>/commit                     number, term and digest of the newest commit
//   <prefix>/rows/<table>/<key>         a row (row_codec.h); continued in .../<key>#<n> if large
//   <prefix>/stage/…                    parts of a commit that is too large for one transaction
//                                       (commit_log.h)
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

// Replaces the file `sqlite_path` by etcd's state and opens it. An older schema is raised. An empty
// prefix becomes an empty state, unless this machine has an earlier state: `earlier` is its file,
// or empty. Requires that the lease is held, that `client` and `lease` outlive the storage, and
// that no other process uses the file.
//
// Errors of this call and of the storage's commits:
//   Aborted             this coordinator must end (is_deposed()): another one leads or may lead, or
//                       it cannot read etcd's state, or cannot write its own copy. Whether the
//                       commit is stored may be unknown, which the message then states.
//   ResourceExhausted   etcd has no space, and the same batch can be repeated; or, of this call,
//                       the local disk
//   FailedPrecondition  a newer version of Muster wrote the state, or etcd has lost it
//   DataLoss            etcd's rows contradict each other or cannot be read
// While etcd does not answer, calls wait until it does or until the lease is lost.
absl::StatusOr<std::unique_ptr<Storage>> open_etcd_storage(EtcdClient& client, LeaderLease& lease,
                                                           const std::string& sqlite_path,
                                                           const std::string& earlier = "");

// Returns whether the error states that this coordinator must not lead any longer.
bool is_deposed(const absl::Status& status);

// Copies the state of a stopped coordinator, or a backup, to etcd. Requires that the lease is held.
// Does not change the file. Returns AlreadyExists if etcd has a state under this prefix, and the
// errors of open_sqlite_storage() and of open_etcd_storage().
absl::Status import_into_etcd(const std::string& sqlite_path, EtcdClient& client,
                              LeaderLease& lease);
// Returns whether etcd's state is of the same store as the file: it was copied there earlier.
absl::StatusOr<bool> is_in_etcd(const std::string& sqlite_path, EtcdClient& client,
                                LeaderLease& lease);

}  // namespace muster::coordinator

#include "coordinator/shell/etcd/row_mirror.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "coordinator/shell/etcd/row_codec.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "etcd/state.pb.h"

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// The keys of one answer, at first. Most rows are small, and some of half a megabyte.
constexpr int64_t kKeysPerPage = 128;
// The time of a call, which several members share.
constexpr Duration kPageCall = std::chrono::seconds(10);
// The time without a page after which this coordinator makes room for another one, whose connection
// may be better.
constexpr Duration kPageWait = std::chrono::seconds(60);
constexpr Duration kShowProgressEvery = std::chrono::seconds(5);

absl::Status remove_file(const std::string& path) {
  if (std::remove(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return file_status(errno, absl::StrCat("removing ", path));
}

absl::Status remove_database(const std::string& path) {
  absl::Status status;
  for (const char* suffix : {"", "-wal", "-shm"}) status.Update(remove_file(path + suffix));
  return status;
}

bool is_part(absl::string_view key) { return absl::StrContains(key, kPartMark); }

}  // namespace

absl::Status replace_database(const std::string& from, const std::string& to) {
  if (absl::Status status = remove_database(to); !status.ok()) return status;
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return file_status(errno, absl::StrCat("renaming ", from, " to ", to));
}

RowMirror::RowMirror(EtcdClient& client, const LeaderLease& lease)
    : calls_(client, lease),
      log_(calls_),
      schema_key_(client.key("schema")),
      rows_prefix_(client.key("rows/")) {}

absl::Status RowMirror::unreadable(const std::string& key, absl::string_view why) const {
  // Another leader may have written between two pages.
  if (!calls_.may_write()) return calls_.deposed();
  return absl::DataLossError(absl::StrCat("the key ", key, " of etcd at ",
                                          calls_.client().endpoints(), " cannot be read: ", why,
                                          kDamagedHint));
}

absl::StatusOr<std::optional<SqliteRow>> RowMirror::row(std::string_view table,
                                                        const SqliteRow& key) {
  api::RangeRequest request;
  request.set_key(absl::StrCat(rows_prefix_, name_of_row(table, key)));
  const auto found = calls_.range(request);
  if (!found.ok()) return found.status();
  if (found->kvs().empty()) return std::nullopt;
  auto row = decode_row(found->kvs(0).value(), 1);
  if (!row.ok()) return unreadable(request.key(), row.status().message());
  return *std::move(row);
}

// Reads the next keys, at most as many as the request's limit, which becomes smaller if they do not
// arrive in time.
absl::StatusOr<api::RangeResponse> RowMirror::read_page(api::RangeRequest& request) {
  const Instant begun = monotonic_now();
  absl::StatusOr<api::RangeResponse> page;
  do {
    page = calls_.read_once(request, kPageCall);
    if (!absl::IsUnavailable(page.status())) return page;
    request.set_limit(std::max<int64_t>(request.limit() / 2, 1));
    calls_.pause();
  } while (monotonic_now() - begun < kPageWait);
  return absl::AbortedError(
      absl::StrCat("this coordinator cannot lead: for ", to_seconds(kPageWait),
                   " s it could not read the state: ", page.status().message()));
}

// Reads the schema and all rows. Only the leader writes, so the pages are of one state.
absl::StatusOr<StoredKeys> RowMirror::read_keys() {
  StoredKeys stored;
  api::RangeRequest schema;
  schema.set_key(schema_key_);
  const auto found = calls_.range(schema);
  if (!found.ok()) return found.status();
  api::RangeRequest request;
  absl::StatusOr<api::RangeResponse> page;
  request.set_key(rows_prefix_);
  request.set_range_end(prefix_end(rows_prefix_));
  request.set_limit(kKeysPerPage);
  size_t bytes = 0;
  Instant shown = monotonic_now();
  do {
    page = read_page(request);
    if (!page.ok()) return page.status();
    for (api::KeyValue& entry : *page->mutable_kvs()) {
      bytes += entry.key().size() + entry.value().size();
      stored.emplace_hint(stored.end(), std::move(*entry.mutable_key()),
                          std::move(*entry.mutable_value()));
    }
    if (page->more()) request.set_key(stored.rbegin()->first + '\0');
    if (monotonic_now() - shown < kShowProgressEvery) continue;
    shown = monotonic_now();
    spdlog::info("reads the state from etcd: {} rows and {} MiB until now", stored.size(),
                 bytes >> 20);
  } while (page->more());
  if (!found->kvs().empty()) stored.emplace(schema_key_, found->kvs(0).value());
  return stored;
}

absl::Status RowMirror::check_schema(const StoredKeys& stored) const {
  const auto found = stored.find(schema_key_);
  etcd_state::StoredSchema schema;
  if (found == stored.end() || !schema.ParseFromString(found->second))
    return unreadable(schema_key_, "it is no schema");
  if (schema.version() <= kSchemaVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the state in etcd at ", calls_.client().endpoints(), " under ", rows_prefix_,
                   " has schema version ", schema.version(), " and this program supports ",
                   kSchemaVersion, ": a newer version of Muster wrote it"));
}

// Creates the tables, and inserts the rows.
absl::Status RowMirror::fill(SqliteDatabase& db, const StoredKeys& stored) const {
  absl::Status status = db.run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;");
  etcd_state::StoredSchema schema;
  schema.ParseFromString(stored.at(schema_key_));
  for (const std::string& statement : schema.statements())
    if (status.ok()) status = db.run(statement.c_str());
  if (!status.ok()) return unreadable(schema_key_, status.message());
  const auto tables = tables_of(db);
  if (!tables.ok()) return tables.status();
  std::map<std::string, RowInserter, std::less<>> inserters;
  std::map<std::string, size_t, std::less<>> columns;
  for (const SqliteTable& table : *tables) {
    auto inserter = RowInserter::prepare(db, table);
    if (!inserter.ok()) return inserter.status();
    inserters.emplace(table.name, *std::move(inserter));
    columns.emplace(table.name, table.columns);
  }
  for (auto entry = stored.lower_bound(rows_prefix_); entry != stored.end();) {
    const std::string& key = entry->first;
    if (!absl::StartsWith(key, rows_prefix_)) break;
    std::string bytes = entry->second;
    size_t parts = 1;
    for (++entry; entry != stored.end() && is_part(entry->first); ++entry, ++parts)
      bytes += entry->second;
    const auto row = decode_row(bytes, parts);
    if (!row.ok()) return unreadable(key, row.status().message());
    const auto table = inserters.find(table_of(std::string_view(key).substr(rows_prefix_.size())));
    if (table == inserters.end() || columns.at(table->first) != row->size())
      return unreadable(key, "it is no row of a table in the schema");
    if (status = table->second.insert(*row); !status.ok()) return status;
  }
  return db.run(absl::StrCat("PRAGMA user_version=", schema.version(), "; COMMIT").c_str());
}

absl::StatusOr<StoredKeys> RowMirror::build_file(const std::string& path) {
  auto stored = read_keys();
  if (!stored.ok()) return stored.status();
  if (absl::Status status = remove_database(path); !status.ok()) return status;
  if (stored->empty()) return stored;
  if (absl::Status status = check_schema(*stored); !status.ok()) return status;
  auto db = SqliteDatabase::open(path);
  if (!db.ok()) return db.status();
  if (absl::Status status = fill(*db, *stored); !status.ok()) return status;
  return stored;
}

absl::Status RowMirror::store_all(SqliteDatabase& db, StoredKeys stored) {
  KeyChanges changes;
  std::map<std::string, size_t> parts;
  const auto want = [&](std::string key, std::string value) {
    const auto found = stored.find(key);
    if (found == stored.end() || found->second != value) changes.emplace(key, std::move(value));
    if (found != stored.end()) stored.erase(found);
  };
  const auto version = db.one_number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const auto statements = schema_of(db);
  if (!statements.ok()) return statements.status();
  etcd_state::StoredSchema schema;
  schema.set_version(static_cast<uint32_t>(*version));
  for (const std::string& statement : *statements) schema.add_statements(statement);
  want(schema_key_, schema.SerializeAsString());
  const auto tables = tables_of(db);
  if (!tables.ok()) return tables.status();
  for (const SqliteTable& table : *tables) {
    absl::Status status = for_each_row(db, table, [&](const SqliteRow& row) {
      SqliteRow primary_key;
      for (const size_t column : table.key) primary_key.push_back(row[column]);
      const std::string key = absl::StrCat(rows_prefix_, name_of_row(table.name, primary_key));
      std::vector<std::string> values = encode_row(row);
      if (values.size() > 1) parts[key] = values.size();
      for (size_t i = 0; i < values.size(); ++i) want(part_key(key, i), std::move(values[i]));
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  for (const auto& [key, value] : stored) changes.emplace(key, std::nullopt);
  return commit(changes, parts);
}

absl::Status RowMirror::store(const std::vector<RowChange>& changes) {
  KeyChanges keys;
  std::map<std::string, size_t> parts;
  for (const RowChange& change : changes) {
    const std::string key = absl::StrCat(rows_prefix_, name_of_row(change.table, change.key));
    std::vector<std::string> values;
    if (change.row.has_value()) values = encode_row(*change.row);
    for (size_t i = 0; i < values.size(); ++i) keys[part_key(key, i)] = std::move(values[i]);
    const auto before = parts_.find(key);
    const size_t count = before != parts_.end() ? before->second : 1;
    for (size_t i = values.size(); i < count; ++i) keys[part_key(key, i)] = std::nullopt;
    parts[key] = values.size();
  }
  return commit(keys, parts);
}

// Commits the changes, and records the number of parts of changed rows.
absl::Status RowMirror::commit(const KeyChanges& changes,
                               const std::map<std::string, size_t>& parts) {
  if (!changes.empty()) {
    if (absl::Status status = log_.commit(changes); !status.ok()) return status;
  }
  for (const auto& [key, count] : parts) {
    if (count > 1) {
      parts_[key] = count;
    } else {
      parts_.erase(key);
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::coordinator

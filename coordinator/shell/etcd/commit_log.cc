#include "coordinator/shell/etcd/commit_log.h"

#include <chrono>
#include <utility>

#include <absl/hash/hash.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// etcd retains each value of a key until its history is removed, and has two gigabytes by default.
constexpr int kCommitsOfHistory = 1'000;
constexpr size_t kBytesOfHistory = 64 << 20;
constexpr Duration kCompactionCall = std::chrono::seconds(1);
// After a failure, so that not each commit waits for the call.
constexpr Duration kCompactionPause = std::chrono::seconds(30);

uint64_t digest_of(const std::vector<api::TxnRequest>& parts) {
  std::vector<std::string> texts;
  texts.reserve(parts.size());
  for (const api::TxnRequest& part : parts) texts.push_back(part.SerializeAsString());
  return absl::Hash<std::vector<std::string>>{}(texts);
}

void add_read(api::TxnRequest& request, const std::string& key) {
  request.add_failure()->mutable_request_range()->set_key(key);
}

// Returns what the failed transaction found instead of what it had compared.
const api::KeyValue* found(const api::TxnResponse& response, int read) {
  if (response.responses_size() <= read) return nullptr;
  const api::RangeResponse& range = response.responses(read).response_range();
  return range.kvs().empty() ? nullptr : &range.kvs(0);
}

}  // namespace

CommitLog::CommitLog(FencedCalls& calls)
    : calls_(calls),
      commit_key_(calls.client().key("commit")),
      stage_prefix_(calls.client().key("stage/")) {}

std::string CommitLog::stage_key(const etcd_state::StoredCommit& commit, size_t part) const {
  return absl::StrFormat("%s%016x/%016x-%016x/%06d", stage_prefix_, commit.term(), commit.number(),
                         commit.digest(), part);
}

// Returns the key's value; nullopt: there is no such key.
absl::StatusOr<std::optional<std::string>> CommitLog::read(const std::string& key) {
  api::RangeRequest request;
  request.set_key(key);
  auto found = calls_.range(request);
  if (!found.ok()) return found.status();
  if (found->kvs().empty()) return std::nullopt;
  return std::move(*found->mutable_kvs(0)->mutable_value());
}

absl::Status CommitLog::recover() {
  auto value = read(commit_key_);
  if (!value.ok()) return value.status();
  last_value_ = value->value_or("");
  if (!last_.ParseFromString(last_value_))
    return absl::DataLossError(absl::StrCat("etcd's key ", commit_key_, " is no commit"));
  if (absl::Status status = finish_stage(); !status.ok()) return status;
  return drop_earlier_stages();
}

// Adds the comparisons that hold while this coordinator leads and last_ is the newest commit, and
// the reads that show which of them has failed.
void CommitLog::add_guard(api::TxnRequest& request) const {
  calls_.add_fence(request);
  api::Compare& compare = *request.add_compare();
  compare.set_key(commit_key_);
  if (last_value_.empty()) {
    compare.set_target(api::Compare::VERSION);
    compare.set_version(0);
  } else {
    compare.set_target(api::Compare::VALUE);
    compare.set_value(last_value_);
  }
  add_read(request, calls_.client().key("leader"));
  add_read(request, commit_key_);
}

// Sends the guarded transaction until it is known whether etcd has executed it. `value`: that of
// the commit's key afterwards; if it differs from last_value_, an attempt whose answer was lost is
// recognized by it. `doubt` is added to an error after such an attempt. Returns false if another
// comparison than the guard's has failed.
absl::StatusOr<bool> CommitLog::execute(api::TxnRequest request, const std::string& value,
                                        std::string_view doubt) {
  bool is_unknown = false;
  const auto failed = [&](const absl::Status& status) {
    return is_unknown && !absl::IsResourceExhausted(status)
               ? absl::Status(status.code(), absl::StrCat(status.message(), av(doubt)))
               : status;
  };
  const bool has_own_comparison = request.compare_size() > 0;
  add_guard(request);
  for (;; calls_.pause()) {
    const auto done = calls_.try_once(request);
    if (absl::IsUnavailable(done.status())) {
      is_unknown = true;
      continue;
    }
    if (!done.ok()) return failed(done.status());
    if (done->succeeded()) return true;
    const api::KeyValue* leader = found(*done, 0);
    const api::KeyValue* commit = found(*done, 1);
    const std::string now = commit != nullptr ? commit->value() : std::string();
    if (now == value && now != last_value_) return true;
    if (leader == nullptr || leader->create_revision() != calls_.term())
      return failed(calls_.deposed());
    if (now == last_value_ && has_own_comparison) return false;
    return absl::InternalError(absl::StrCat("etcd's key ", commit_key_,
                                            " was changed by another program than the leader"));
  }
}

absl::Status CommitLog::stage(const etcd_state::StoredCommit& commit,
                              const std::vector<api::TxnRequest>& parts) {
  for (size_t part = 0; part < parts.size(); ++part) {
    api::TxnRequest put;
    add_put(put, stage_key(commit, part), parts[part].SerializeAsString());
    if (absl::Status status = execute(std::move(put), last_value_).status(); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

// Moves a part of the last commit to its final keys, unless it has moved.
absl::Status CommitLog::move(size_t part) {
  const std::string key = stage_key(last_, part);
  for (;;) {
    const auto value = read(key);
    if (!value.ok()) return value.status();
    if (value->has_value() && (*value)->empty()) return absl::OkStatus();
    api::TxnRequest operations;
    if (!value->has_value() || !operations.ParseFromString(**value)) {
      return absl::DataLossError(absl::StrCat(
          "etcd's key ", key, value->has_value() ? " is no part of a commit" : " is missing",
          ": it is a part of the newest commit", kDamagedHint));
    }
    api::TxnRequest request;
    api::Compare& compare = *request.add_compare();
    compare.set_key(key);
    compare.set_target(api::Compare::VALUE);
    compare.set_result(api::Compare::NOT_EQUAL);
    compare.set_value("");
    add_operations(std::move(operations), request);
    add_put(request, key, "");
    const auto moved = execute(std::move(request), last_value_);
    if (!moved.ok()) return moved.status();
    if (*moved) return absl::OkStatus();
  }
}

// Moves the parts of the last commit, and deletes its stage.
absl::Status CommitLog::finish_stage() {
  if (last_.staged() == 0) return absl::OkStatus();
  for (size_t part = 0; part < last_.staged(); ++part)
    if (absl::Status status = move(part); !status.ok()) return status;
  etcd_state::StoredCommit moved = last_;
  moved.clear_staged();
  const std::string value = moved.SerializeAsString();
  api::TxnRequest request;
  add_put(request, commit_key_, value);
  api::DeleteRangeRequest& stage = *request.add_success()->mutable_request_delete_range();
  stage.set_key(stage_prefix_);
  stage.set_range_end(
      absl::StrFormat("%s%016x/%016x", stage_prefix_, calls_.term(), last_.number() + 1));
  if (absl::Status status = execute(std::move(request), value).status(); !status.ok())
    return status;
  last_ = moved;
  last_value_ = value;
  return absl::OkStatus();
}

// Deletes what earlier leaders have staged and not made valid.
absl::Status CommitLog::drop_earlier_stages() {
  api::TxnRequest request;
  api::DeleteRangeRequest& stages = *request.add_success()->mutable_request_delete_range();
  stages.set_key(stage_prefix_);
  stages.set_range_end(absl::StrFormat("%s%016x/", stage_prefix_, calls_.term()));
  return execute(std::move(request), last_value_).status();
}

// Stores the commit, whose parts may still have to move.
absl::Status CommitLog::store(const etcd_state::StoredCommit& next, const std::string& value,
                              const std::vector<api::TxnRequest>& parts) {
  if (value == doubtful_value_) {
    const auto now = read(commit_key_);
    if (!now.ok()) return now.status();
    if (*now == value) return absl::OkStatus();
  }
  doubtful_value_ = value;
  if (next.staged() > 0) {
    if (absl::Status status = stage(next, parts); !status.ok()) return status;
  }
  api::TxnRequest request;
  add_put(request, commit_key_, value);
  if (parts.size() == 1) add_operations(parts[0], request);
  return execute(std::move(request), value, "; whether its last commit is stored is unknown")
      .status();
}

absl::Status CommitLog::commit(const KeyChanges& changes) {
  if (absl::Status status = finish_stage(); !status.ok()) return status;
  const std::vector<api::TxnRequest> parts = split(changes);
  etcd_state::StoredCommit next;
  next.set_number(last_.number() + 1);
  next.set_term(calls_.term());
  next.set_digest(digest_of(parts));
  if (parts.size() > 1) next.set_staged(static_cast<uint32_t>(parts.size()));
  const std::string value = next.SerializeAsString();
  if (absl::Status status = store(next, value, parts); !status.ok()) return status;
  last_ = next;
  last_value_ = value;
  // The commit is stored, whatever becomes of the move.
  if (absl::Status status = finish_stage(); !status.ok())
    spdlog::warn("a stored commit could not be completed yet: {}", std::string(status.message()));
  limit_history(parts);
  return absl::OkStatus();
}

void CommitLog::limit_history(const std::vector<api::TxnRequest>& parts) {
  for (const api::TxnRequest& part : parts) bytes_ += part.ByteSizeLong();
  if (++commits_ >= kCommitsOfHistory || bytes_ >= kBytesOfHistory) forget_history();
}

void CommitLog::forget_history() {
  if (monotonic_now() < compact_from_) return;
  const absl::Status status = calls_.client().compact(calls_.revision(), kCompactionCall);
  commits_ = status.ok() ? 0 : kCommitsOfHistory;
  if (status.ok()) {
    bytes_ = 0;
  } else {
    compact_from_ = monotonic_now() + kCompactionPause;
    spdlog::warn("etcd's history could not be removed and will be in {} s: {}",
                 to_seconds(kCompactionPause), std::string(status.message()));
  }
}

}  // namespace muster::coordinator

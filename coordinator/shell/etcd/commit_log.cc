#include "coordinator/shell/etcd/commit_log.h"

#include <chrono>
#include <utility>

#include <absl/hash/hash.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <spdlog/spdlog.h>

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// etcd retains each value of a key until its history is removed, and has two gigabytes by default.
constexpr int kCommitsOfHistory = 1'000;
constexpr size_t kBytesOfHistory = 64 << 20;
constexpr Duration kCompactionCall = std::chrono::seconds(1);

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

std::string CommitLog::stage_key(uint64_t number, size_t part) const {
  return absl::StrFormat("%s%016x/%06d", stage_prefix_, number, part);
}

// Returns the key's value; empty: there is no such key.
absl::StatusOr<std::string> CommitLog::read(const std::string& key) {
  api::RangeRequest request;
  request.set_key(key);
  auto found = calls_.range(request);
  if (!found.ok()) return found.status();
  return found->kvs().empty() ? std::string() : std::move(*found->mutable_kvs(0)->mutable_value());
}

absl::Status CommitLog::recover() {
  auto value = read(commit_key_);
  if (!value.ok()) return value.status();
  last_value_ = *std::move(value);
  if (!last_.ParseFromString(last_value_))
    return absl::DataLossError(absl::StrCat("etcd's key ", commit_key_, " is no commit"));
  is_staged_ = true;
  return finish_stage();
}

absl::Status CommitLog::stage(uint64_t number, const std::vector<api::TxnRequest>& parts) {
  for (size_t part = 0; part < parts.size(); ++part) {
    api::TxnRequest put;
    add_put(put, stage_key(number, part), parts[part].SerializeAsString());
    if (absl::Status status = calls_.apply(std::move(put)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Moves the parts of the last commit, and deletes all staged keys.
absl::Status CommitLog::finish_stage() {
  for (size_t part = 0; part < last_.staged(); ++part) {
    const std::string key = stage_key(last_.number(), part);
    const auto value = read(key);
    if (!value.ok()) return value.status();
    if (value->empty()) continue;  // it has moved
    api::TxnRequest operations;
    if (!operations.ParseFromString(*value))
      return absl::DataLossError(absl::StrCat("etcd's key ", key, " is no part of a commit"));
    api::TxnRequest move;
    add_operations(std::move(operations), move);
    add_delete(move, key);
    if (absl::Status status = calls_.apply(std::move(move)); !status.ok()) return status;
  }
  api::TxnRequest clear;
  api::DeleteRangeRequest& all = *clear.add_success()->mutable_request_delete_range();
  all.set_key(stage_prefix_);
  all.set_range_end(prefix_end(stage_prefix_));
  absl::Status status = calls_.apply(std::move(clear));
  is_staged_ = !status.ok();
  return status;
}

// Sends the transaction that writes `value` to the commit's key, until it is known whether etcd has
// executed it. It cannot be executed twice, nor later, once another commit has the number.
absl::Status CommitLog::make_valid(api::TxnRequest request, const std::string& value) {
  bool is_unknown = false;
  const auto failed = [&](const absl::Status& status) {
    return is_unknown && !absl::IsResourceExhausted(status)
               ? absl::Status(status.code(),
                              absl::StrCat(status.message(),
                                           "; whether its last commit is stored is unknown"))
               : status;
  };
  for (;; calls_.pause()) {
    const auto done = calls_.try_once(request);
    if (absl::IsUnavailable(done.status())) {
      is_unknown = true;
      continue;
    }
    if (!done.ok()) return failed(done.status());
    if (done->succeeded()) return absl::OkStatus();
    const api::KeyValue* leader = found(*done, 0);
    const api::KeyValue* commit = found(*done, 1);
    // An earlier attempt, whose answer was lost, has stored it.
    if (commit != nullptr && commit->value() == value) return absl::OkStatus();
    if (leader == nullptr || leader->create_revision() != calls_.term())
      return failed(calls_.deposed());
    return absl::InternalError(absl::StrCat("etcd's key ", commit_key_,
                                            " was changed by another program than the leader"));
  }
}

absl::Status CommitLog::commit(const KeyChanges& changes) {
  if (is_staged_) {
    if (absl::Status status = finish_stage(); !status.ok()) return status;
  }
  std::vector<api::TxnRequest> parts = split(changes);
  etcd_state::StoredCommit next;
  next.set_number(last_.number() + 1);
  next.set_term(calls_.term());
  next.set_digest(digest_of(parts));
  if (parts.size() > 1) {
    next.set_staged(static_cast<uint32_t>(parts.size()));
    if (absl::Status status = stage(next.number(), parts); !status.ok()) return status;
  }
  const std::string value = next.SerializeAsString();
  api::TxnRequest request;
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
  add_put(request, commit_key_, value);
  if (parts.size() == 1) add_operations(parts[0], request);
  add_read(request, calls_.client().key("leader"));
  add_read(request, commit_key_);
  if (absl::Status status = make_valid(std::move(request), value); !status.ok()) return status;
  last_ = next;
  last_value_ = value;
  is_staged_ = parts.size() > 1;
  if (is_staged_) {
    // The commit is stored, whatever becomes of the move.
    if (absl::Status status = finish_stage(); !status.ok())
      spdlog::warn("a stored commit could not be completed yet: {}", std::string(status.message()));
  }
  limit_history(parts);
  return absl::OkStatus();
}

void CommitLog::limit_history(const std::vector<api::TxnRequest>& parts) {
  for (const api::TxnRequest& part : parts) bytes_ += part.ByteSizeLong();
  if (++commits_ >= kCommitsOfHistory || bytes_ >= kBytesOfHistory) forget_history();
}

void CommitLog::forget_history() {
  const absl::Status status = calls_.client().compact(calls_.revision(), kCompactionCall);
  commits_ = status.ok() ? 0 : kCommitsOfHistory;
  if (status.ok()) {
    bytes_ = 0;
  } else {
    spdlog::warn("etcd's history could not be removed: {}", std::string(status.message()));
  }
}

}  // namespace muster::coordinator

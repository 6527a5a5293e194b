#include "coordinator/shell/grpc/callers.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "coordinator/shell/grpc/call_guard.h"

namespace muster::coordinator {
namespace {

absl::Status removed_token() {
  return absl::UnauthenticatedError(
      "the token has expired or was removed: is the file of --token-file out of date?");
}

}  // namespace

Callers::Callers(std::shared_ptr<Tokens> tokens, std::shared_ptr<AuditLog> log,
                 Duration check_every)
    : tokens_(std::move(tokens)), log_(std::move(log)), check_every_(check_every) {
  if (tokens_ != nullptr) thread_ = std::thread([this] { run(); });
}

Callers::~Callers() { stop(); }

void Callers::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<Caller> Callers::of(const grpc::ServerContextBase& context) const {
  if (tokens_ == nullptr) return unrestricted_caller();
  const auto grant = tokens_->grant_of(bearer_token(context.client_metadata()), monotonic_now());
  if (!grant.ok()) return grant.status();
  return grant->caller;
}

absl::Status Callers::check_node(const grpc::ServerContextBase& context,
                                 const std::string& node) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  const auto grant = tokens_->grant_of(bearer_token(context.client_metadata()), monotonic_now());
  if (!grant.ok()) return grant.status();
  const bool may_register =
      grant->nodes.empty() || std::ranges::any_of(grant->nodes, [&](const std::string& pattern) {
        return fnmatch(pattern.c_str(), node.c_str(), 0) == 0 &&
               node.find('\0') == std::string::npos;
      });
  if (may_register) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the token does not permit a worker of this name: it is for the nodes ",
                   absl::StrJoin(grant->nodes, ",")));
}

Audit Callers::audit(const grpc::ServerContextBase& context, std::string_view method,
                     std::string target, bool is_change) const {
  if (log_ == nullptr) return {};
  AuditEntry entry{
      .method = std::string(method), .target = std::move(target), .peer = context.peer()};
  if (tokens_ != nullptr) {
    const daemon::TokenDigest token = daemon::token_digest(bearer_token(context.client_metadata()));
    entry.token = audit_token(token);
    if (const auto grant = tokens_->grant_of(token, monotonic_now())) {
      entry.role = std::string(name_of(grant->role));
      entry.caller = grant->caller.name;
    }
  } else if (const auto names = context.auth_context()->GetPeerIdentity(); !names.empty()) {
    entry.caller = std::string(names.front().data(), names.front().size());
  }
  return {log_, std::move(entry), is_change};
}

void Callers::watch(const grpc::ServerContextBase& context, std::weak_ptr<RevocableStream> stream) {
  if (tokens_ == nullptr) return;
  Watched watched{.token = daemon::token_digest(bearer_token(context.client_metadata())),
                  .grant = std::nullopt,
                  .stream = std::move(stream)};
  watched.grant = tokens_->grant_of(watched.token, monotonic_now());
  const std::lock_guard lock(mutex_);
  watched_.push_back(std::move(watched));
  if (watched_.size() < prune_at_) return;
  std::erase_if(watched_, [](const Watched& one) { return one.stream.expired(); });
  prune_at_ = std::max<size_t>(64, 2 * watched_.size());
}

void Callers::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, check_every_, [&] { return is_stopped_; })) {
    lock.unlock();
    check();
    lock.lock();
  }
}

// Calls streams without the lock, because they may be slow.
void Callers::check() {
  std::vector<Watched> open;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [](const Watched& one) { return one.stream.expired(); });
    open = watched_;
  }
  for (const Watched& one : open) {
    const auto grant = tokens_->grant_of(one.token, monotonic_now());
    if (grant && grant == one.grant) continue;
    const auto stream = one.stream.lock();
    if (stream == nullptr) continue;
    stream->revoke(grant ? absl::UnauthenticatedError("the rights of the token have changed")
                         : removed_token());
  }
}

}  // namespace muster::coordinator

// Finds out who makes a gRPC call, and ends streams whose callers are no longer permitted to read
// them. CallGuard has checked the call's token before.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/server_context.h>

#include "coordinator/core/records/caller.h"
#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/identity/tokens.h"

namespace muster::coordinator {

// A stream that ends with its caller's token.
class RevocableStream {
 public:
  virtual ~RevocableStream() = default;
  // Ends the stream. Called on a thread of Callers, again and again until the stream is destroyed;
  // must not block.
  virtual void revoke(const absl::Status& status) = 0;
};

// Thread-safe.
class Callers {
 public:
  // `tokens`: null if calls need none; then every caller is an admin. `check_every`: the interval
  // at which the tokens of open streams are checked. `log`: null: requests have no lines.
  Callers(std::shared_ptr<Tokens> tokens, std::shared_ptr<AuditLog> log, Duration check_every);
  // Stops as stop() does.
  ~Callers();
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  // Returns Unauthenticated if the token was removed after CallGuard had checked it.
  absl::StatusOr<Caller> of(const grpc::ServerContextBase& context) const;

  // Returns PermissionDenied if the call's token does not permit a worker of this name.
  absl::Status check_node(const grpc::ServerContextBase& context, const std::string& node) const;

  // Returns the line of a request in the audit log. `method`: "CancelJob".
  Audit audit(const grpc::ServerContextBase& context, std::string_view method, std::string target,
              bool is_change) const;

  // Watches the token of a call: revokes the stream once the token is removed, or its rights have
  // changed.
  void watch(const grpc::ServerContextBase& context, std::weak_ptr<RevocableStream> stream);

  // Ends no further streams.
  void stop();

 private:
  struct Watched {
    daemon::TokenDigest token{};
    std::optional<TokenGrant> grant;  // at the begin of the stream
    std::weak_ptr<RevocableStream> stream;
  };

  void run();
  void check();

  const std::shared_ptr<Tokens> tokens_;
  const std::shared_ptr<AuditLog> log_;
  const Duration check_every_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::vector<Watched> watched_;
  size_t prune_at_ = 0;  // the size of watched_ at which streams that have ended are removed
  std::thread thread_;
};

}  // namespace muster::coordinator

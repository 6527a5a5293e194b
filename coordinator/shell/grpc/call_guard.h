// Authorises each call by its bearer token before a handler runs.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <grpcpp/security/auth_metadata_processor.h>

#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/identity/tokens.h"
#include "coordinator/shell/metrics/shell_metrics.h"

namespace muster::coordinator {

// Returns the lowest role that may call a method ("/muster.v1.Muster/GetJob"); nullopt if everyone
// may. Unknown methods require kAdmin.
std::optional<Role> role_needed(std::string_view method);
// Returns whether `role` may call a method that requires `needed`.
bool may(Role role, Role needed);

// Returns the name of a known method ("GetJob"), or "other": the paths of strangers must not add
// series.
std::string_view method_label(std::string_view method);

// Returns the bearer token of a call; "" if it has none.
std::string_view bearer_token(const grpc::AuthMetadataProcessor::InputMetadata& metadata);

class CallGuard final : public grpc::AuthMetadataProcessor {
 public:
  // Counts refusals in `metrics`, and writes them to `log`; each may be null.
  CallGuard(std::shared_ptr<Tokens> tokens, std::shared_ptr<ShellMetrics> metrics,
            std::shared_ptr<AuditLog> log)
      : tokens_(std::move(tokens)), metrics_(std::move(metrics)), log_(std::move(log)) {}

  // Checks one call. Returns UNAUTHENTICATED without a known token, and PERMISSION_DENIED for an
  // insufficient role. Called on a gRPC thread.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  grpc::Status refuse(std::string_view method, std::string_view token,
                      const std::optional<TokenGrant>& grant, const absl::Status& why) const;

  const std::shared_ptr<Tokens> tokens_;
  const std::shared_ptr<ShellMetrics> metrics_;
  const std::shared_ptr<AuditLog> log_;
};

}  // namespace muster::coordinator

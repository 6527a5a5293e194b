// Authorises each call by its bearer token before a handler runs.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <grpcpp/security/auth_metadata_processor.h>

#include "coordinator/shell/grpc/tokens.h"

namespace muster::coordinator {

// Returns the lowest role that may call a method ("/muster.v1.Muster/GetJob"); nullopt if everyone
// may. Unknown methods require kAdmin.
std::optional<Role> role_needed(std::string_view method);
// Returns whether `role` may call a method that requires `needed`.
bool may(Role role, Role needed);

class CallGuard final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallGuard(std::unique_ptr<Tokens> tokens) : tokens_(std::move(tokens)) {}

  // Checks one call. Returns UNAUTHENTICATED without a known token, and PERMISSION_DENIED for an
  // insufficient role. Called on a gRPC thread.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  const std::unique_ptr<Tokens> tokens_;
};

}  // namespace muster::coordinator

// Lets a call through by its bearer token, before a handler sees it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <grpcpp/security/auth_metadata_processor.h>

#include "coordinator/shell/tokens.h"

namespace muster::coordinator {

// What a method ("/muster.v1.Muster/GetJob") takes at least; none: anyone may call it. Methods that nobody has thought of are an admin's.
std::optional<Role> role_needed(std::string_view method);
// Whether who is `role` may call what needs `needed`.
bool may(Role role, Role needed);

class CallGuard final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallGuard(std::unique_ptr<Tokens> tokens) : tokens_(std::move(tokens)) {}

  // On a thread of gRPC's for this. UNAUTHENTICATED without a known token, PERMISSION_DENIED where the role is not enough.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  const std::unique_ptr<Tokens> tokens_;
};

}  // namespace muster::coordinator

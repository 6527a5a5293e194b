// Security of the gRPC port: its certificate, and who may call.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/security/server_credentials.h>

#include "daemon/endpoint.h"

// Ubuntu 22.04's gRPC (1.30) reads a certificate only once.
#if __has_include(<grpcpp/security/tls_certificate_provider.h>)
#define MUSTER_GRPC_WATCHES_CERTIFICATES 1
#else
#define MUSTER_GRPC_WATCHES_CERTIFICATES 0
#endif

namespace muster::coordinator {

// Paths from the command line.
struct ServerTrust {
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // clients need a certificate signed by one of these
  std::string token_dir = {};      // calls need a token of this folder; see tokens.h

  bool has_tls() const { return !tls_cert.empty(); }
};

// Returns InvalidArgument if the flags contradict each other, FailedPrecondition if users of other
// machines could reach `listen` without authentication.
absl::Status check_trust(const ServerTrust& trust, const daemon::Endpoint& listen, bool insecure);

// Reads the files. While the server runs it reads tokens again, and certificates if gRPC supports
// that. Errors name the flag and the file.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const ServerTrust& trust);

}  // namespace muster::coordinator

// What makes the gRPC port safe to reach: a certificate of its own, and who may call.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/security/server_credentials.h>

#include "daemon/endpoint.h"

// Ubuntu 22.04's gRPC (1.30) reads a certificate once.
#if __has_include(<grpcpp/security/tls_certificate_provider.h>)
#define MUSTER_GRPC_WATCHES_CERTIFICATES 1
#else
#define MUSTER_GRPC_WATCHES_CERTIFICATES 0
#endif

namespace muster::coordinator {

// Paths, as on the command line.
struct ServerTrust {
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // clients need a certificate that one of these has signed
  std::string token_dir = {};      // calls need a token of this folder: tokens.h

  bool has_tls() const { return !tls_cert.empty(); }
};

// InvalidArgument when the flags contradict each other, FailedPrecondition when others than this machine's users could reach `listen` and
// nobody has to say who he is.
absl::Status check_trust(const ServerTrust& trust, const daemon::Endpoint& listen, bool insecure);

// Reads the files; tokens, and certificates where gRPC can, are read again while the server runs. Errors name the flag and the file.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const ServerTrust& trust);

}  // namespace muster::coordinator

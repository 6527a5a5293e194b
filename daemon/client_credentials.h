// Converts the files of a ClientTrust to gRPC's credentials.
//
// The files are read for each connection, so that certificates and tokens can change while a
// program runs.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <grpcpp/security/credentials.h>

#include "daemon/client_trust.h"
#include "daemon/trust_files.h"

namespace muster::daemon {

// The contents of the files; empty for unset flags.
struct ClientSecrets {
  std::string ca;
  KeyPair pair;
  std::string token;

  bool operator==(const ClientSecrets&) const = default;
};

// Reads the files. Returns the error of check_flags(), or an error that names the file and its
// problem. Thread-safe.
absl::StatusOr<ClientSecrets> read_secrets(const ClientTrust& trust);

// Returns the credentials of a channel: TLS and the token as far as they are set. Without them the
// connection is unencrypted and unauthenticated.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const ClientSecrets& secrets);

}  // namespace muster::daemon

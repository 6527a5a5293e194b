// Converts a ClientTrust's files to gRPC's credentials.
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

// The files' content; empty for unset flags.
struct ClientSecrets {
  std::string ca;
  KeyPair pair;
  std::string token;

  bool operator==(const ClientSecrets&) const = default;
};

// Returns check_flags()'s error, or one that names the file and what is wrong with it. Thread-safe.
absl::StatusOr<ClientSecrets> read_secrets(const ClientTrust& trust);

// Returns credentials of a channel: TLS and the token if set, otherwise an open connection.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const ClientSecrets& secrets);

}  // namespace muster::daemon

// From a ClientTrust's files to gRPC's credentials.
//
// Files are read again for each connection, so that certificates and tokens can be changed while a program runs.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <grpcpp/security/credentials.h>

#include "daemon/client_trust.h"
#include "daemon/trust_files.h"

namespace muster::daemon {

// What the files hold; empty where there is no flag.
struct ClientSecrets {
  std::string ca;
  KeyPair pair;
  std::string token;

  bool operator==(const ClientSecrets&) const = default;
};

// The error is check_flags()'s, or names the file and what is wrong with it. Any thread.
absl::StatusOr<ClientSecrets> read_secrets(const ClientTrust& trust);

// Of a channel: TLS and the token where there are any, an open connection otherwise.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const ClientSecrets& secrets);

}  // namespace muster::daemon

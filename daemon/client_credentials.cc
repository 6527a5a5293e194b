#include "daemon/client_credentials.h"

#include <utility>

namespace muster::daemon {

absl::StatusOr<ClientSecrets> read_secrets(const ClientTrust& trust) {
  if (absl::Status status = check_flags(trust); !status.ok()) return status;
  ClientSecrets secrets;
  if (!trust.has_tls()) return secrets;
  auto ca = read_certificates("--tls-ca", trust.tls_ca);
  if (!ca.ok()) return ca.status();
  secrets.ca = *std::move(ca);
  if (!trust.tls_cert.empty()) {
    auto pair = read_key_pair(trust.tls_cert, trust.tls_key);
    if (!pair.ok()) return pair.status();
    secrets.pair = *std::move(pair);
  }
  if (!trust.token_file.empty()) {
    auto tokens = read_tokens("--token-file", trust.token_file);
    if (!tokens.ok()) return tokens.status();
    if (tokens->empty()) {
      return absl::InvalidArgumentError("--token-file=" + trust.token_file +
                                        ": there is no token in it");
    }
    secrets.token = std::move(tokens->front());
  }
  return secrets;
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const ClientSecrets& secrets) {
  if (secrets.ca.empty()) return grpc::InsecureChannelCredentials();
  auto tls = grpc::SslCredentials({.pem_root_certs = secrets.ca,
                                   .pem_private_key = secrets.pair.key,
                                   .pem_cert_chain = secrets.pair.certificate});
  if (secrets.token.empty()) return tls;
  return grpc::CompositeChannelCredentials(tls, grpc::AccessTokenCredentials(secrets.token));
}

}  // namespace muster::daemon

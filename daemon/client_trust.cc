#include "daemon/client_trust.h"

namespace muster::daemon {

absl::Status check_flags(const ClientTrust& trust) {
  if (trust.tls_cert.empty() != trust.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert and --tls-key go together: a certificate is of no use without its key");
  }
  if (trust.has_tls()) return absl::OkStatus();
  if (!trust.tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert needs --tls-ca: without it the connection has no TLS");
  }
  if (!trust.token_file.empty()) {
    return absl::InvalidArgumentError(
        "--token-file needs --tls-ca: a token is not sent over a connection that others can read");
  }
  return absl::OkStatus();
}

}  // namespace muster::daemon

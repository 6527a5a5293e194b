// Security of the gRPC port: its certificate, and the authentication of callers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/security/server_credentials.h>

#include "coordinator/shell/audit/audit_log.h"
#include "coordinator/shell/identity/tokens.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "daemon/endpoint.h"
#include "daemon/tls_files.h"

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
  // authorities; each client needs a certificate signed by one of them
  std::string tls_client_ca = {};
  std::string token_dir = {};          // folder of tokens; each call needs one of them (tokens.h)
  std::vector<std::string> oidc = {};  // files of issuers whose tokens are accepted, too

  bool has_tls() const { return !tls_cert.empty(); }
  bool has_tokens() const { return !token_dir.empty() || !oidc.empty(); }
  // Returns whether each caller shows a token or a certificate.
  bool knows_callers() const { return !tls_client_ca.empty() || has_tokens(); }
};

// Returns InvalidArgument if the flags contradict each other, FailedPrecondition if users of other
// machines could reach `listen` without authentication.
absl::Status check_trust(const ServerTrust& trust, const daemon::Endpoint& listen, bool insecure);

// Reads the tokens and the issuers' settings; null if there are neither. Without a folder of
// tokens, waits some seconds for the issuers' keys.
absl::StatusOr<std::shared_ptr<Tokens>> open_tokens(const ServerTrust& trust);

// Reads the files and returns the server's credentials. While the server runs, certificates are
// read again if gRPC supports it. Errors name the flag and the file. `tokens`: of
// open_tokens(). `metrics` counts the refused calls, which `log` records.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const ServerTrust& trust, std::shared_ptr<Tokens> tokens, std::shared_ptr<ShellMetrics> metrics,
    std::shared_ptr<AuditLog> log);

// Reads the files for the HTTP port; null without --tls-cert.
absl::StatusOr<std::shared_ptr<daemon::TlsFiles>> http_tls(const ServerTrust& trust);

}  // namespace muster::coordinator

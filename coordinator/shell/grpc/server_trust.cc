#include "coordinator/shell/grpc/server_trust.h"

#include <utility>

#include <absl/strings/str_cat.h>
#if MUSTER_GRPC_WATCHES_CERTIFICATES
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#endif

#include "coordinator/shell/grpc/call_guard.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {
namespace {

constexpr Duration kIssuerPatience = std::chrono::seconds(5);

#if MUSTER_GRPC_WATCHES_CERTIFICATES
// The interval of reading certificates. Certificates are usually renewed hours before they expire.
constexpr unsigned kCertificatesReadEverySeconds = 5;

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const ServerTrust& trust,
                                                         const daemon::KeyPair&,
                                                         const std::string& client_ca) {
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          trust.tls_key, trust.tls_cert, trust.tls_client_ca, kCertificatesReadEverySeconds));
  options.watch_identity_key_cert_pairs();
  if (!client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}
#else
std::shared_ptr<grpc::ServerCredentials> tls_credentials(const ServerTrust&,
                                                         const daemon::KeyPair& pair,
                                                         const std::string& client_ca) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({pair.key, pair.certificate});
  if (!client_ca.empty()) {
    options.pem_root_certs = client_ca;
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(options);
}
#endif

}  // namespace

absl::Status check_trust(const ServerTrust& trust, const daemon::Endpoint& listen, bool insecure) {
  if (trust.tls_cert.empty() != trust.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert and --tls-key go together: a certificate is of no use without its key");
  }
  if (!trust.has_tls() && !trust.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(
        "--tls-client-ca needs --tls-cert and --tls-key: clients show certificates within TLS");
  }
  if (!trust.has_tls() && trust.has_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat(trust.token_dir.empty() ? "--oidc" : "--token-dir",
                     " needs --tls-cert and --tls-key: a token is not sent over a connection that "
                     "others can read"));
  }
  return daemon::check_exposure(
      "--listen", listen, insecure || trust.knows_callers(),
      trust.has_tls()
          ? "callers need no credentials; give --token-dir, --oidc or --tls-client-ca, too, or "
            "pass --insecure if the network is trusted"
          : "there is no transport security; give --tls-cert, --tls-key and "
            "--token-dir, or pass --insecure if the network is trusted");
}

absl::StatusOr<std::shared_ptr<Tokens>> open_tokens(const ServerTrust& trust) {
  if (!trust.has_tokens()) return nullptr;
  OidcIssuers issuers;
  for (const std::string& path : trust.oidc) {
    auto settings = read_oidc_settings(path);
    if (!settings.ok()) return settings.status();
    for (const auto& other : issuers)
      if (other->name() == settings->issuer)
        return absl::InvalidArgumentError(
            absl::StrCat("--oidc=", path, ": another file has the same issuer"));
    issuers.push_back(
        std::make_unique<OidcIssuer>(*std::move(settings), OidcIssuer::Options{.path = path}));
  }
  // Without its issuers, a coordinator with tokens of its own is of use all the same.
  const Instant end = monotonic_now() + kIssuerPatience;
  for (const auto& issuer : issuers)
    if (trust.token_dir.empty()) issuer->wait_for_keys(end - monotonic_now());
  return Tokens::open(trust.token_dir, std::move(issuers));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const ServerTrust& trust, std::shared_ptr<Tokens> tokens, std::shared_ptr<ShellMetrics> metrics,
    std::shared_ptr<AuditLog> log) {
  if (!trust.has_tls()) return grpc::InsecureServerCredentials();
  // Checks the files here, because gRPC reports wrong files only as failed connections.
  const auto pair = daemon::read_key_pair(trust.tls_cert, trust.tls_key);
  if (!pair.ok()) return pair.status();
  std::string client_ca;
  if (!trust.tls_client_ca.empty()) {
    auto ca = daemon::read_certificates("--tls-client-ca", trust.tls_client_ca);
    if (!ca.ok()) return ca.status();
    client_ca = *std::move(ca);
  }
  const auto credentials = tls_credentials(trust, *pair, client_ca);
  if (tokens != nullptr) {
    credentials->SetAuthMetadataProcessor(
        std::make_shared<CallGuard>(std::move(tokens), std::move(metrics), std::move(log)));
  }
  return credentials;
}

absl::StatusOr<std::shared_ptr<daemon::TlsFiles>> http_tls(const ServerTrust& trust) {
  if (!trust.has_tls()) return nullptr;
  return daemon::TlsFiles::open(
      {.certificate = trust.tls_cert, .key = trust.tls_key, .client_ca = trust.tls_client_ca});
}

}  // namespace muster::coordinator

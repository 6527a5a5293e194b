#include "daemon/tls_files.h"

#include <openssl/ssl.h>

#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

namespace muster::daemon {
namespace {

namespace ssl = boost::asio::ssl;

constexpr Duration kCertificateFreshFor = std::chrono::seconds(5);

absl::StatusOr<std::shared_ptr<ssl::context>> make_context(const KeyPair& pair,
                                                           const std::string& client_ca) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  const auto buffer = [](const std::string& text) {
    return boost::asio::const_buffer(text.data(), text.size());
  };
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::single_dh_use,
                       error);
  if (!error) context->use_certificate_chain(buffer(pair.certificate), error);
  if (!error) context->use_private_key(buffer(pair.key), ssl::context::pem, error);
  // Without a context of their own, TLS sessions that are resumed with a client certificate fail.
  constexpr unsigned char kSessions[] = "muster";
  SSL_CTX_set_session_id_context(context->native_handle(), kSessions, sizeof(kSessions) - 1);
  if (!error && !client_ca.empty()) {
    context->add_certificate_authority(buffer(client_ca), error);
    if (!error)
      context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("--tls-cert cannot be used: ", error.message()));
  return context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsFiles>> TlsFiles::open(TlsPaths paths) {
  std::shared_ptr<TlsFiles> files(new TlsFiles(std::move(paths)));
  if (absl::Status status = files->read(); !status.ok()) return status;
  files->read_at_ = monotonic_now();
  return files;
}

absl::Status TlsFiles::read() {
  auto pair = read_key_pair(paths_.certificate, paths_.key);
  if (!pair.ok()) return pair.status();
  std::string client_ca;
  if (!paths_.client_ca.empty()) {
    auto ca = read_certificates("--tls-client-ca", paths_.client_ca);
    if (!ca.ok()) return ca.status();
    client_ca = *std::move(ca);
  }
  if (context_ != nullptr && *pair == pair_ && client_ca == client_ca_) return absl::OkStatus();
  auto context = make_context(*pair, client_ca);
  if (!context.ok()) return context.status();
  context_ = *std::move(context);
  pair_ = *std::move(pair);
  client_ca_ = std::move(client_ca);
  return absl::OkStatus();
}

std::shared_ptr<ssl::context> TlsFiles::context(Instant now) {
  const std::lock_guard lock(mutex_);
  if (now - read_at_ >= kCertificateFreshFor) {
    read_at_ = now;
    const std::string trouble(read().message());
    if (!trouble.empty() && trouble != trouble_)
      spdlog::warn("the certificate of the pages is unchanged: {}", trouble);
    trouble_ = trouble;
  }
  return context_;
}

}  // namespace muster::daemon

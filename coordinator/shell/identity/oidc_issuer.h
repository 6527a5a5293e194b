// Checks tokens of an OpenID Connect issuer (OpenID Connect Core 1.0, Discovery 1.0). Keycloak,
// Okta, Google, Entra ID and the service accounts of Kubernetes are such issuers.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/shell/identity/oidc_settings.h"
#include "coordinator/shell/identity/signed_tokens.h"

namespace muster::coordinator {

// Thread-safe.
class OidcIssuer {
 public:
  // Returns the text at an https:// address.
  using Fetch = std::function<absl::StatusOr<std::string>(const std::string& url)>;

  // Bounds the requests that tokens of invented keys, and an issuer that does not answer, cause.
  static constexpr Duration kReadPause = std::chrono::seconds(5);

  // Starts a thread that reads the issuer's keys now, every ten minutes, and after a token of an
  // unknown key, with pauses of `read_pause`. `fetch`: null: by HTTPS, with the authorities of the
  // settings.
  explicit OidcIssuer(OidcSettings settings, Fetch fetch = nullptr,
                      Duration read_pause = kReadPause);
  ~OidcIssuer();
  OidcIssuer(const OidcIssuer&) = delete;
  OidcIssuer& operator=(const OidcIssuer&) = delete;

  // Returns what the token permits at that Unix time; Unauthenticated with the reason otherwise.
  // Does no I/O.
  absl::StatusOr<TokenGrant> grant_of(std::string_view token, int64_t unix_s);

  // Waits until the thread has tried once to read the keys, for at most that time. Returns whether
  // there are keys.
  bool wait_for_keys(Duration budget);

 private:
  void run();
  absl::StatusOr<IssuerKeys> read_keys() const;

  const OidcSettings settings_;
  const Fetch fetch_;
  const Duration read_pause_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const IssuerKeys> keys_;  // null: not read yet
  std::string trouble_;                     // the last error of reading, which was logged
  bool was_read_ = false;                   // reading was tried once
  bool is_wanted_ = false;                  // a token has an unknown key
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace muster::coordinator

// Checks tokens of an OpenID Connect issuer (OpenID Connect Core 1.0, Discovery 1.0). Keycloak,
// Okta, Google, Entra ID and the service accounts of Kubernetes are such issuers.
#pragma once

#include <condition_variable>
#include <cstdint>
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
#include "daemon/https_get.h"

namespace muster::coordinator {

// The settings and the key by which a token was accepted.
struct Acceptance {
  uint64_t settings = 0;  // their version
  std::string key;        // SignedClaims::key
};

// Thread-safe.
class OidcIssuer {
 public:
  // Returns the text of a document.
  using Fetch = std::function<absl::StatusOr<std::string>(const daemon::HttpsGet& get)>;

  struct Options {
    std::string path{};  // the file of the settings, which is read again when it changes; "": none
    Fetch fetch{};       // null: by HTTPS
    // Bounds the requests that tokens of invented keys, and an issuer that does not answer, cause.
    Duration read_pause = std::chrono::seconds(5);
  };

  // Starts a thread that reads the issuer's keys now, every ten minutes, and after a token of an
  // unknown key.
  OidcIssuer(OidcSettings settings, Options options);
  // Ends a reading in progress.
  ~OidcIssuer() = default;
  OidcIssuer(const OidcIssuer&) = delete;
  OidcIssuer& operator=(const OidcIssuer&) = delete;

  std::string name() const;  // the claim `iss` of its tokens

  struct Accepted {
    TokenGrant grant;
    Acceptance acceptance;
  };
  // Returns what the token permits at that Unix time; Unauthenticated with the reason otherwise.
  // Does no I/O.
  absl::StatusOr<Accepted> grant_of(std::string_view token, int64_t unix_s);
  // Returns whether the settings are the same, and the issuer has not withdrawn the key.
  bool still_accepts(const Acceptance& acceptance) const;

  // Waits until the thread has tried once to read the keys, for at most that time. Returns whether
  // there are keys.
  bool wait_for_keys(Duration budget);

 private:
  void run(const std::stop_token& stop);
  void read_settings();
  void read_keys(const std::stop_token& stop);
  absl::StatusOr<IssuerKeys> fetch_keys(const OidcSettings& settings,
                                        const std::stop_token& stop) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::shared_ptr<const OidcSettings> settings_;
  uint64_t version_ = 1;                    // the settings' version
  std::shared_ptr<const IssuerKeys> keys_;  // null: not read yet
  std::string keys_issuer_;                 // the issuer of keys_
  std::string trouble_;                     // the last error of reading keys, which was logged
  std::string settings_trouble_;            // the same of settings
  bool was_read_ = false;                   // reading was tried once
  bool is_wanted_ = false;                  // a token has an unknown key
  std::jthread thread_;
};

}  // namespace muster::coordinator

// JSON Web Tokens (RFC 7519) that an issuer has signed (RFC 7515) with one of its keys (RFC 7517).
#pragma once

#include <cjose/jwk.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::coordinator {

// Returns whether the text has the form of a signed token: three parts of base64url.
bool is_signed_token(std::string_view text);

// The public keys of an issuer. Thread-safe.
class IssuerKeys {
 public:
  // Reads a JWK set. Takes RSA keys of 2048 bits and more, and EC keys, for signatures; skips
  // others. Returns InvalidArgument if it is no JWK set, or no key remains.
  static absl::StatusOr<IssuerKeys> parse(const std::string& text);

  // Returns the claims of a token that one of the keys has signed, as a JSON object. Returns
  // NotFound if the issuer has no such key, which a later set may have, and Unauthenticated, with
  // the reason, if the token is invalid. Accepts RS256 to RS512, PS256 to PS512 and ES256 to ES512.
  // The claims are not judged.
  absl::StatusOr<nlohmann::json> claims_of(std::string_view token) const;

 private:
  struct Release {
    void operator()(cjose_jwk_t* key) const { cjose_jwk_release(key); }
  };
  struct Key {
    std::string id;   // ""; the issuer gave none
    std::string alg;  // the only algorithm of the key; "": those of its type
    std::unique_ptr<cjose_jwk_t, Release> jwk;
    bool is_rsa = false;
  };

  std::vector<Key> keys_;
};

}  // namespace muster::coordinator

// JSON Web Tokens (RFC 7519) that an issuer has signed (RFC 7515) with one of its keys (RFC 7517).
#pragma once

#include <cjose/jwk.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::coordinator {

// Returns whether the text has the form of a signed token: three parts of base64url.
bool is_signed_token(std::string_view text);

// Returns the claim `iss` of a signed token, which is not verified; "" if there is none.
std::string unverified_issuer(std::string_view token);

struct SignedClaims {
  nlohmann::json claims;  // an object
  std::string key;        // the public key, which distinguishes it from others
};

// The public keys of an issuer. Thread-safe.
class IssuerKeys {
 public:
  // Reads a JWK set. Takes RSA keys of 2048 bits and more, and EC keys, for signatures; skips
  // others. Returns InvalidArgument if it is no JWK set, or no key remains.
  static absl::StatusOr<IssuerKeys> parse(const std::string& text);

  // Returns the claims of a token that one of the keys has signed. Returns NotFound if none of the
  // keys fits, which a later set may have, and Unauthenticated, with the reason, if the token is
  // invalid. Accepts RS256 to RS512, PS256 to PS512 and ES256 to ES512, and one spelling of each
  // signature's bytes. The claims are not judged.
  absl::StatusOr<SignedClaims> claims_of(std::string_view token) const;

  // Returns whether SignedClaims::key is one of the keys.
  bool has(std::string_view key) const;

 private:
  struct Release {
    void operator()(cjose_jwk_t* key) const { cjose_jwk_release(key); }
  };
  struct Key {
    std::string id{};    // ""; the issuer gave none
    std::string alg{};   // the only algorithm of the key; "": those of RSA
    std::string text{};  // the public values
    size_t signature_bytes = 0;
    std::unique_ptr<cjose_jwk_t, Release> jwk{};
    bool is_rsa = false;
  };

  // Sets the members of the key by its type. Returns whether the key is fit.
  static bool take_type(const nlohmann::json& object, Key& key);
  // Returns what the key has signed; a discarded value if that is no JSON; nullopt if the key has
  // not signed the token.
  static std::optional<nlohmann::json> verified_claims(std::string_view token, const Key& key);

  std::vector<Key> keys_;
};

}  // namespace muster::coordinator

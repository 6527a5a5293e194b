#include "coordinator/shell/identity/signed_tokens.h"

#include <cjose/header.h>
#include <cjose/jws.h>

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

// An issuer has a few keys: those in use, and the next.
constexpr size_t kKeysMax = 64;
constexpr size_t kRsaBytesMin = 2048 / 8;
constexpr size_t kTokenWordShown = 64;
constexpr size_t kPartCount = 3;

constexpr std::array<std::string_view, 6> kRsaAlgorithms = {"RS256", "RS384", "RS512",
                                                            "PS256", "PS384", "PS512"};
constexpr std::array<std::string_view, 3> kEcAlgorithms = {"ES256", "ES384", "ES512"};

bool is_base64url(absl::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
}

// Returns a member that is a text; "" if there is none.
std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::Status bad_token(std::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("the token is refused: ", av(why)));
}

absl::StatusOr<nlohmann::json> header_of(std::string_view token) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(av(token.substr(0, token.find('.'))), &bytes))
    return bad_token("its header is not base64url");
  auto header = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return bad_token("its header is no JSON object");
  // A verifier must refuse extensions that it does not support (RFC 7515, 4.1.11).
  if (header.contains("crit")) return bad_token("its header has critical extensions");
  return header;
}

struct ReleaseToken {
  void operator()(cjose_jws_t* token) const { cjose_jws_release(token); }
};
using TokenPointer = std::unique_ptr<cjose_jws_t, ReleaseToken>;

}  // namespace

bool is_signed_token(std::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(av(text), '.');
  return parts.size() == kPartCount && std::ranges::all_of(parts, is_base64url);
}

absl::StatusOr<IssuerKeys> IssuerKeys::parse(const std::string& text) {
  const auto set = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto found = set.is_object() ? set.find("keys") : set.end();
  if (!set.is_object() || found == set.end() || !found->is_array())
    return absl::InvalidArgumentError("it is no JWK set: an object with a list `keys`");
  IssuerKeys keys;
  for (const nlohmann::json& one : *found) {
    if (!one.is_object() || keys.keys_.size() == kKeysMax) continue;
    const std::string type = text_of(one, "kty");
    const std::string use = text_of(one, "use");
    if ((type != "RSA" && type != "EC") || (!use.empty() && use != "sig")) continue;
    std::string modulus;
    if (type == "RSA" && (!absl::WebSafeBase64Unescape(text_of(one, "n"), &modulus) ||
                          modulus.size() < kRsaBytesMin))
      continue;
    const std::string json = one.dump();
    cjose_jwk_t* jwk = cjose_jwk_import(json.data(), json.size(), nullptr);
    if (jwk == nullptr) continue;
    keys.keys_.push_back({.id = text_of(one, "kid"),
                          .alg = text_of(one, "alg"),
                          .jwk = std::unique_ptr<cjose_jwk_t, Release>(jwk),
                          .is_rsa = type == "RSA"});
  }
  if (keys.keys_.empty())
    return absl::InvalidArgumentError(
        "it has no RSA key of at least 2048 bits, and no EC key, for signatures");
  return keys;
}

absl::StatusOr<nlohmann::json> IssuerKeys::claims_of(std::string_view token) const {
  if (!is_signed_token(token)) return bad_token("it is no signed JSON Web Token");
  const auto header = header_of(token);
  if (!header.ok()) return header.status();
  const std::string alg = text_of(*header, "alg");
  const bool is_rsa = std::ranges::find(kRsaAlgorithms, alg) != kRsaAlgorithms.end();
  if (!is_rsa && std::ranges::find(kEcAlgorithms, alg) == kEcAlgorithms.end())
    return bad_token(
        absl::StrCat("its algorithm is ", printable(alg, kTokenWordShown),
                     ": RS256 to RS512, PS256 to PS512 and ES256 to ES512 are accepted"));
  const std::string id = text_of(*header, "kid");
  bool has_key = false;
  for (const Key& key : keys_) {
    if (key.is_rsa != is_rsa || (!key.alg.empty() && key.alg != alg)) continue;
    if (!id.empty() && !key.id.empty() && key.id != id) continue;
    has_key = true;
    const TokenPointer parsed(cjose_jws_import(token.data(), token.size(), nullptr));
    if (parsed == nullptr) return bad_token("it cannot be read");
    if (!cjose_jws_verify(parsed.get(), key.jwk.get(), nullptr)) continue;
    uint8_t* bytes = nullptr;
    size_t size = 0;
    if (!cjose_jws_get_plaintext(parsed.get(), &bytes, &size, nullptr))
      return bad_token("it has no claims");
    auto claims = nlohmann::json::parse(bytes, bytes + size, nullptr, /*allow_exceptions=*/false);
    if (!claims.is_object()) return bad_token("its claims are no JSON object");
    return claims;
  }
  if (has_key) return bad_token("its signature is wrong");
  return absl::NotFoundError(absl::StrCat("the token is refused: its issuer has no key ",
                                          printable(id, kTokenWordShown), " for ", alg));
}

}  // namespace muster::coordinator

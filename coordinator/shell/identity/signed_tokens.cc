#include "coordinator/shell/identity/signed_tokens.h"

#include <cjose/header.h>
#include <cjose/jws.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/identity/json_text.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {
namespace {

// An issuer has a few keys: those in use, and the next.
constexpr size_t kKeysMax = 64;
// Bounds the signatures that one call without a key's id lets the coordinator verify.
constexpr int kTrialsMax = 4;
constexpr size_t kRsaBytesMin = 2048 / 8;
constexpr size_t kTokenWordShown = 64;
constexpr size_t kPartCount = 3;

constexpr std::array<std::string_view, 6> kRsaAlgorithms = {"RS256", "RS384", "RS512",
                                                            "PS256", "PS384", "PS512"};
struct Curve {
  std::string_view name;
  std::string_view alg;
  size_t signature_bytes;
};
constexpr std::array<Curve, 3> kCurves = {
    {{"P-256", "ES256", 64}, {"P-384", "ES384", 96}, {"P-521", "ES512", 132}}};

// Returns whether the text is the base64url of some bytes, in the one form without padding. Others
// would give a token several spellings.
bool is_base64url(absl::string_view text) {
  std::string bytes;
  if (text.empty() || !absl::WebSafeBase64Unescape(text, &bytes)) return false;
  return absl::WebSafeBase64Escape(bytes) == text;
}

absl::Status bad_token(std::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("the token is refused: ", av(why)));
}

absl::StatusOr<nlohmann::json> header_of(std::string_view token) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(av(token.substr(0, token.find('.'))), &bytes))
    return bad_token("its header is not base64url");
  auto header = parse_shallow(bytes);
  if (!header.is_object()) return bad_token("its header is no JSON object");
  // A verifier must refuse extensions that it does not support (RFC 7515, 4.1.11).
  if (header.contains("crit")) return bad_token("its header has critical extensions");
  const std::string type = absl::AsciiStrToLower(text_member(header, "typ"));
  if (!type.empty() && type != "jwt" && type != "at+jwt" && type != "application/at+jwt")
    return bad_token(absl::StrCat("its type is ", printable(type, kTokenWordShown), ", not JWT"));
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

std::string unverified_issuer(std::string_view token) {
  const std::vector<absl::string_view> parts = absl::StrSplit(av(token), '.');
  std::string bytes;
  if (parts.size() != kPartCount || !absl::WebSafeBase64Unescape(parts[1], &bytes)) return "";
  const auto claims = parse_shallow(bytes);
  return claims.is_object() ? text_member(claims, "iss") : "";
}

absl::StatusOr<IssuerKeys> IssuerKeys::parse(const std::string& text) {
  const auto set = parse_shallow(text);
  const auto found = set.is_object() ? set.find("keys") : set.end();
  if (!set.is_object() || found == set.end() || !found->is_array())
    return absl::InvalidArgumentError("it is no JWK set: an object with a list `keys`");
  IssuerKeys keys;
  for (const nlohmann::json& one : *found) {
    if (!one.is_object() || keys.keys_.size() == kKeysMax) continue;
    const std::string use = text_member(one, "use");
    if (!use.empty() && use != "sig") continue;
    Key key{.id = text_member(one, "kid"), .alg = text_member(one, "alg")};
    if (!take_type(one, key)) continue;
    const std::string json = one.dump();
    key.jwk.reset(cjose_jwk_import(json.data(), json.size(), nullptr));
    ERR_clear_error();
    if (key.jwk != nullptr) keys.keys_.push_back(std::move(key));
  }
  if (keys.keys_.empty())
    return absl::InvalidArgumentError(
        "it has no RSA key of at least 2048 bits, and no EC key, for signatures");
  return keys;
}

bool IssuerKeys::take_type(const nlohmann::json& object, Key& key) {
  const std::string type = text_member(object, "kty");
  key.is_rsa = type == "RSA";
  if (key.is_rsa) {
    std::string modulus;
    if (!absl::WebSafeBase64Unescape(text_member(object, "n"), &modulus)) return false;
    modulus.erase(0, modulus.find_first_not_of('\0'));
    key.signature_bytes = modulus.size();
    key.text = absl::StrCat("RSA ", text_member(object, "n"), " ", text_member(object, "e"));
    return modulus.size() >= kRsaBytesMin;
  }
  const std::string curve = text_member(object, "crv");
  for (const Curve& one : kCurves) {
    if (type != "EC" || curve != one.name) continue;
    // Each curve has one algorithm (RFC 7518, 3.4).
    if (!key.alg.empty() && key.alg != one.alg) return false;
    key.alg = std::string(one.alg);
    key.signature_bytes = one.signature_bytes;
    key.text = absl::StrCat("EC ", text_member(object, "x"), " ", text_member(object, "y"));
    return true;
  }
  return false;
}

bool IssuerKeys::has(std::string_view key) const {
  return std::ranges::any_of(keys_, [&](const Key& one) { return one.text == key; });
}

absl::StatusOr<SignedClaims> IssuerKeys::claims_of(std::string_view token) const {
  if (token.size() > daemon::kTokenBytesMax || !is_signed_token(token))
    return bad_token("it is no signed JSON Web Token");
  const auto header = header_of(token);
  if (!header.ok()) return header.status();
  const std::string alg = text_member(*header, "alg");
  const bool is_rsa = std::ranges::find(kRsaAlgorithms, alg) != kRsaAlgorithms.end();
  const bool is_ec =
      std::ranges::any_of(kCurves, [&](const Curve& curve) { return curve.alg == alg; });
  if (!is_rsa && !is_ec)
    return bad_token(absl::StrCat("its algorithm is ", printable(alg, kTokenWordShown),
                                  ": RS256 to RS512, PS256 to PS512 and ES256 to ES512 are "
                                  "accepted"));
  std::string signature;
  if (!absl::WebSafeBase64Unescape(av(token.substr(token.rfind('.') + 1)), &signature))
    return bad_token("its signature is not base64url");
  const std::string id = text_member(*header, "kid");
  bool has_key = false;
  int trials = 0;
  for (const Key& key : keys_) {
    if (key.is_rsa != is_rsa || (!key.alg.empty() && key.alg != alg)) continue;
    if (!id.empty() && !key.id.empty() && key.id != id) continue;
    has_key = has_key || (!id.empty() && key.id == id);
    if (signature.size() != key.signature_bytes || ++trials > kTrialsMax) continue;
    auto claims = verified_claims(token, key);
    if (!claims) continue;
    if (claims->is_object()) return SignedClaims{*std::move(claims), key.text};
    return bad_token("its claims are no JSON object");
  }
  if (has_key) return bad_token("its signature is wrong");
  if (trials > 0) return absl::NotFoundError("the token is refused: its signature is wrong");
  return absl::NotFoundError(absl::StrCat("the token is refused: its issuer has no key ",
                                          printable(id, kTokenWordShown), " for ", alg));
}

std::optional<nlohmann::json> IssuerKeys::verified_claims(std::string_view token, const Key& key) {
  const TokenPointer parsed(cjose_jws_import(token.data(), token.size(), nullptr));
  uint8_t* bytes = nullptr;
  size_t size = 0;
  const bool is_valid = parsed != nullptr &&
                        cjose_jws_verify(parsed.get(), key.jwk.get(), nullptr) &&
                        cjose_jws_get_plaintext(parsed.get(), &bytes, &size, nullptr);
  // gRPC, which shares the thread, takes an error that remains for one of its own connections.
  ERR_clear_error();
  if (!is_valid) return std::nullopt;
  return parse_shallow({reinterpret_cast<const char*>(bytes), size});
}

}  // namespace muster::coordinator

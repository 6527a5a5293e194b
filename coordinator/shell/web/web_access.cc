#include "coordinator/shell/web/web_access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <boost/asio/ip/address.hpp>

#include "common/process/host_name.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/grpc/call_guard.h"

namespace muster::coordinator {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kCsrfBytes = 16;
constexpr size_t kHostShown = 128;
// The begin of a cookie with the token as it is; it is no hexadecimal digit.
constexpr absl::string_view kPlainToken = "t.";
// The time after which a person has to log in again.
constexpr int kCookieSeconds = 7 * 24 * 3600;

// Returns the host of "localhost:7071", "[::1]:7071" or "10.0.0.1", without brackets.
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) return std::string(authority.substr(1, authority.find(']') - 1));
  return std::string(authority.substr(0, authority.find(':')));
}

// A name of another site cannot stand for this machine without the operator's doing: an address, a
// name without dots, or this machine's own name.
bool is_own_host(std::string_view authority) {
  const std::string host = host_of(authority);
  boost::system::error_code error;
  (void)boost::asio::ip::make_address(host, error);
  return !error || host.find('.') == std::string::npos || absl::EqualsIgnoreCase(host, host_name());
}

bool equals_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// Returns whether a browser sent the request for a page of another site.
bool has_other_origin(const daemon::HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos || origin.substr(scheme + 3) != request.header("host");
}

WebCaller with_grant(WebCaller caller, const TokenGrant& grant) {
  if (grant.role == Role::kWorker) return caller;
  caller.role = grant.role;
  caller.identity = grant.caller;
  return caller;
}

}  // namespace

WebAccess::WebAccess(WebAccessOptions options)
    : options_(std::move(options)), secret_(kSecretBytes, '\0') {
  // Without random bytes every POST of a browser is refused.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret_.data()), kSecretBytes) != 1)
    secret_.clear();
}

absl::Status WebAccess::check_host(const daemon::HttpRequest& request) const {
  if (requires_login()) return absl::OkStatus();
  const std::string_view site = request.header("sec-fetch-site");
  // Browsers omit that header for addresses like http://10.0.0.5, but streams have an origin.
  if (request.path.starts_with("/api/") &&
      (site == "cross-site" || site == "same-site" || has_other_origin(request)))
    return absl::PermissionDeniedError(
        "the request comes from a page of another site: without tokens only this site's pages may "
        "use the API");
  const bool is_local = request.is_from_here && options_.is_on_loopback;
  if (!is_local && !options_.serves_strangers)
    return absl::PermissionDeniedError(
        "without tokens the page is served only if --http is on loopback: start the coordinator "
        "with "
        "--tls-cert, --tls-key and --token-dir, or use ssh -L");
  // Within TLS the client has checked that the certificate has the name.
  if (request.is_secure || is_own_host(request.header("host"))) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the host is ", printable(request.header("host"), kHostShown),
                   ": without tokens the page answers only to an IP address, localhost or this "
                   "machine's name"));
}

WebCaller WebAccess::caller_of(const daemon::HttpRequest& request) const {
  if (!requires_login())
    return {.role = Role::kAdmin, .identity = unrestricted_caller(), .csrf = csrf_of("")};
  const std::string_view authorization = request.header("authorization");
  if (authorization.starts_with(kBearer))
    return admitted(authorization.substr(kBearer.size()), {.has_bearer = true});
  return caller_of_token(cookie_of(request));
}

WebCaller WebAccess::admitted(std::string_view token, WebCaller caller) const {
  caller.token = daemon::token_digest(token);
  const auto grant = options_.tokens->grant_of(token, monotonic_now());
  if (grant.ok()) return with_grant(std::move(caller), *grant);
  caller.refusal = std::string(grant.status().message());
  return caller;
}

WebCaller WebAccess::caller_of_token(std::string_view token) const {
  if (token.empty()) return {.csrf = csrf_of("")};
  return admitted(token, {.csrf = csrf_of(token)});
}

WebCaller WebAccess::renewed(WebCaller caller) const {
  if (!caller.token) return caller;
  const auto grant = options_.tokens->grant_of(*caller.token, monotonic_now());
  caller.role = std::nullopt;
  caller.identity = {};
  return grant ? with_grant(std::move(caller), *grant) : caller;
}

absl::Status WebAccess::check_role(const WebCaller& caller, Role needed,
                                   std::string_view method) const {
  if (!caller.role)
    return absl::UnauthenticatedError(
        !caller.has_bearer       ? "log in first: POST /api/v1/login with a token"
        : caller.refusal.empty() ? "the coordinator has no such token for people"
                                 : caller.refusal);
  if (may(*caller.role, needed)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(av(method), " needs the role ",
                                                  av(name_of(needed)), ", and this token's is ",
                                                  av(name_of(*caller.role))));
}

absl::Status WebAccess::check_post(const daemon::HttpRequest& request,
                                   const WebCaller& caller) const {
  if (caller.has_bearer) return absl::OkStatus();
  const std::string_view site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin")
    return absl::PermissionDeniedError("CSRF: the request comes from a page of another site");
  if (has_other_origin(request))
    return absl::PermissionDeniedError(absl::StrCat("CSRF: the request comes from ",
                                                    printable(request.header("origin"), kHostShown),
                                                    ", another site"));
  if (!caller.csrf.empty() && equals_secret(request.header("x-muster-csrf"), caller.csrf))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      "CSRF: the header X-Muster-CSRF must be the member csrf of GET /api/v1/session");
}

std::string WebAccess::csrf_of(std::string_view cookie) const {
  if (secret_.empty()) return "";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
       reinterpret_cast<const unsigned char*>(cookie.data()), cookie.size(), digest.data(), &bytes);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), kCsrfBytes));
}

// Tokens are required only with TLS, which the prefix __Host- requires.
std::string WebAccess::cookie_name() const { return absl::StrCat("__Host-muster-", options_.port); }

std::string WebAccess::cookie_of(const daemon::HttpRequest& request) const {
  const std::string name = cookie_name();
  for (absl::string_view part : absl::StrSplit(av(request.header("cookie")), ';')) {
    part = absl::StripLeadingAsciiWhitespace(part);
    if (!absl::ConsumePrefix(&part, name) || !absl::ConsumePrefix(&part, "=")) continue;
    if (absl::ConsumePrefix(&part, kPlainToken)) return std::string(part);
    const bool is_hex = part.size() % 2 == 0 &&
                        part.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
    return is_hex ? absl::HexStringToBytes(part) : std::string();
  }
  return "";
}

std::pair<std::string, std::string> WebAccess::login_cookie(std::string_view token) const {
  // Signed tokens have no characters that a cookie must not have; others are written as hex.
  const std::string value = is_signed_token(token) ? absl::StrCat(kPlainToken, av(token))
                                                   : absl::BytesToHexString(av(token));
  return {"Set-Cookie", absl::StrCat(cookie_name(), "=", value, "; Path=/; Max-Age=",
                                     kCookieSeconds, "; Secure; HttpOnly; SameSite=Strict")};
}

std::pair<std::string, std::string> WebAccess::logout_cookie() const {
  return {"Set-Cookie",
          absl::StrCat(cookie_name(), "=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict")};
}

}  // namespace muster::coordinator

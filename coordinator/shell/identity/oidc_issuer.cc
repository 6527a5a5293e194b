#include "coordinator/shell/identity/oidc_issuer.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"
#include "daemon/https_get.h"

namespace muster::coordinator {
namespace {

// Issuers announce a key long before they sign with it.
constexpr Duration kKeysFreshFor = std::chrono::minutes(10);
constexpr unsigned kHttpOk = 200;

OidcIssuer::Fetch https_fetch(const std::string& authorities) {
  return [authorities](const std::string& url) -> absl::StatusOr<std::string> {
    auto get = daemon::parse_https_url(url);
    if (!get.ok()) return get.status();
    get->authorities = authorities;
    auto answer = daemon::https_get(*get);
    if (!answer.ok()) return answer.status();
    if (answer->code == kHttpOk) return std::move(answer->body);
    return absl::UnavailableError(absl::StrCat("the answer has the code ", answer->code));
  };
}

absl::Status at(const std::string& url, const absl::Status& status) {
  return {status.code(), absl::StrCat(url, ": ", status.message())};
}

}  // namespace

OidcIssuer::OidcIssuer(OidcSettings settings, Fetch fetch, Duration read_pause)
    : settings_(std::move(settings)),
      fetch_(fetch ? std::move(fetch) : https_fetch(settings_.authorities)),
      read_pause_(read_pause),
      thread_([this] { run(); }) {}

OidcIssuer::~OidcIssuer() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::StatusOr<TokenGrant> OidcIssuer::grant_of(std::string_view token, int64_t unix_s) {
  std::shared_ptr<const IssuerKeys> keys;
  {
    const std::lock_guard lock(mutex_);
    keys = keys_;
  }
  if (keys == nullptr)
    return absl::UnauthenticatedError(
        absl::StrCat("the keys of ", settings_.issuer,
                     " could not be read yet; the coordinator's log has the reason"));
  const auto claims = keys->claims_of(token);
  if (claims.ok()) return grant_of_claims(settings_, *claims, unix_s);
  if (!absl::IsNotFound(claims.status())) return claims.status();
  {
    const std::lock_guard lock(mutex_);
    is_wanted_ = true;
  }
  changed_.notify_all();
  return absl::UnauthenticatedError(claims.status().message());
}

bool OidcIssuer::wait_for_keys(Duration budget) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, budget, [&] { return was_read_; });
  return keys_ != nullptr;
}

absl::StatusOr<IssuerKeys> OidcIssuer::read_keys() const {
  std::string url = settings_.jwks_uri;
  if (url.empty()) {
    const std::string discovery =
        absl::StrCat(absl::StripSuffix(settings_.issuer, "/"), "/.well-known/openid-configuration");
    const auto text = fetch_(discovery);
    if (!text.ok()) return at(discovery, text.status());
    const auto document = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const auto member = [&](const char* name) {
      const bool has_text =
          document.is_object() && document.contains(name) && document[name].is_string();
      return has_text ? document[name].get<std::string>() : std::string();
    };
    // Discovery 1.0, 4.3: otherwise another issuer's keys would be used.
    if (member("issuer") != settings_.issuer)
      return at(discovery, absl::FailedPreconditionError(
                               absl::StrCat("it is no document of the issuer ", settings_.issuer)));
    url = member("jwks_uri");
    if (url.empty()) return at(discovery, absl::FailedPreconditionError("it has no jwks_uri"));
  }
  const auto text = fetch_(url);
  if (!text.ok()) return at(url, text.status());
  auto keys = IssuerKeys::parse(*text);
  if (!keys.ok()) return at(url, keys.status());
  return keys;
}

void OidcIssuer::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    is_wanted_ = false;
    lock.unlock();
    auto keys = read_keys();
    lock.lock();
    const std::string trouble(keys.status().message());
    if (!keys.ok() && trouble != trouble_)
      spdlog::warn("the keys of --oidc cannot be read: {}", trouble);
    if (keys.ok() && (keys_ == nullptr || !trouble_.empty()))
      spdlog::info("the keys of {} have been read", settings_.issuer);
    trouble_ = trouble;
    if (keys.ok()) keys_ = std::make_shared<const IssuerKeys>(*std::move(keys));
    was_read_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, read_pause_, [&] { return is_stopped_; });
    if (keys_ == nullptr || !trouble_.empty()) continue;
    changed_.wait_for(lock, kKeysFreshFor, [&] { return is_stopped_ || is_wanted_; });
  }
}

}  // namespace muster::coordinator

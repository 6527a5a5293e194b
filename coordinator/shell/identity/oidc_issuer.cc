#include "coordinator/shell/identity/oidc_issuer.h"

#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <spdlog/spdlog.h>

#include "common/files/file_read.h"
#include "coordinator/shell/identity/json_text.h"

namespace muster::coordinator {
namespace {

// Issuers announce a key long before they sign with it.
constexpr Duration kKeysFreshFor = std::chrono::minutes(10);
constexpr Duration kSettingsFreshFor = std::chrono::seconds(2);
constexpr unsigned kHttpOk = 200;
constexpr size_t kAccountTokenBytesMax = 16 << 10;

absl::StatusOr<std::string> fetch_by_https(const daemon::HttpsGet& get) {
  auto answer = daemon::https_get(get);
  if (!answer.ok()) return answer.status();
  if (answer->code == kHttpOk) return std::move(answer->body);
  return absl::UnavailableError(absl::StrCat("the answer has the code ", answer->code));
}

absl::Status at(const std::string& url, const absl::Status& status) {
  return {status.code(), absl::StrCat(url, ": ", status.message())};
}

OidcIssuer::Options with_fetch(OidcIssuer::Options options) {
  if (!options.fetch) options.fetch = fetch_by_https;
  return options;
}

}  // namespace

OidcIssuer::OidcIssuer(OidcSettings settings, Options options)
    : options_(with_fetch(std::move(options))),
      settings_(std::make_shared<const OidcSettings>(std::move(settings))),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::string OidcIssuer::name() const {
  const std::lock_guard lock(mutex_);
  return settings_->issuer;
}

absl::StatusOr<OidcIssuer::Accepted> OidcIssuer::grant_of(std::string_view token, int64_t unix_s) {
  std::shared_ptr<const OidcSettings> settings;
  std::shared_ptr<const IssuerKeys> keys;
  uint64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    settings = settings_;
    keys = keys_;
    version = version_;
  }
  if (keys == nullptr)
    return absl::UnauthenticatedError(
        absl::StrCat("the keys of ", settings->issuer,
                     " could not be read yet; the coordinator's log has the reason"));
  auto claims = keys->claims_of(token);
  if (absl::IsNotFound(claims.status())) {
    {
      const std::lock_guard lock(mutex_);
      is_wanted_ = true;
    }
    changed_.notify_all();
    return absl::UnauthenticatedError(claims.status().message());
  }
  if (!claims.ok()) return claims.status();
  auto grant = grant_of_claims(*settings, claims->claims, unix_s);
  if (!grant.ok()) return grant.status();
  return Accepted{*std::move(grant), {version, std::move(claims->key)}};
}

bool OidcIssuer::still_accepts(const Acceptance& acceptance) const {
  const std::lock_guard lock(mutex_);
  return acceptance.settings == version_ && keys_ != nullptr && keys_->has(acceptance.key);
}

bool OidcIssuer::wait_for_keys(Duration budget) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, budget, [&] { return was_read_; });
  return keys_ != nullptr;
}

absl::StatusOr<IssuerKeys> OidcIssuer::fetch_keys(const OidcSettings& settings,
                                                  const std::stop_token& stop) const {
  std::string token;
  if (!settings.token_file.empty()) {
    const std::string what = absl::StrCat("token_file=", settings.token_file);
    auto text = read_file_up_to(kAccountTokenBytesMax, settings.token_file, what);
    if (!text.ok()) return text.status();
    token = std::string(absl::StripAsciiWhitespace(*text));
  }
  // The token is sent to addresses of the settings, and to other documents of the same server.
  std::string trusted_host;
  const auto fetch = [&](const std::string& url, bool is_of_settings) {
    auto get = daemon::parse_https_url(url);
    if (!get.ok()) return absl::StatusOr<std::string>(get.status());
    const std::string host = absl::StrCat(get->host, " ", get->port);
    if (is_of_settings) trusted_host = host;
    get->authorities = settings.authorities;
    if (host == trusted_host) get->token = token;
    get->stop = stop;
    return options_.fetch(*get);
  };
  std::string url = settings.jwks_uri;
  if (url.empty()) {
    const std::string discovery =
        absl::StrCat(absl::StripSuffix(settings.issuer, "/"), "/.well-known/openid-configuration");
    const auto text = fetch(discovery, true);
    if (!text.ok()) return at(discovery, text.status());
    const auto document = parse_shallow(*text);
    // Discovery 1.0, 4.3: otherwise another issuer's keys would be used.
    if (text_member(document, "issuer") != settings.issuer)
      return at(discovery, absl::FailedPreconditionError(
                               absl::StrCat("it is no document of the issuer ", settings.issuer)));
    url = text_member(document, "jwks_uri");
    if (url.empty()) return at(discovery, absl::FailedPreconditionError("it has no jwks_uri"));
  }
  const auto text = fetch(url, !settings.jwks_uri.empty());
  if (!text.ok()) return at(url, text.status());
  auto keys = IssuerKeys::parse(*text);
  if (!keys.ok()) return at(url, keys.status());
  return keys;
}

// A mistake in the file leaves the settings as they are.
void OidcIssuer::read_settings() {
  if (options_.path.empty()) return;
  auto settings = read_oidc_settings(options_.path);
  const std::string trouble(settings.status().message());
  const std::lock_guard lock(mutex_);
  if (!trouble.empty() && trouble != settings_trouble_)
    spdlog::warn("the settings of an issuer are unchanged: {}", trouble);
  settings_trouble_ = trouble;
  if (!settings.ok() || *settings == *settings_) return;
  spdlog::info("the settings of an issuer are read again from {}", options_.path);
  settings_ = std::make_shared<const OidcSettings>(*std::move(settings));
  ++version_;
  is_wanted_ = true;
}

void OidcIssuer::read_keys(const std::stop_token& stop) {
  std::shared_ptr<const OidcSettings> settings;
  {
    const std::lock_guard lock(mutex_);
    settings = settings_;
    is_wanted_ = false;
  }
  auto keys = fetch_keys(*settings, stop);
  const std::string trouble(keys.status().message());
  {
    const std::lock_guard lock(mutex_);
    if (!trouble.empty() && trouble != trouble_ && !stop.stop_requested())
      spdlog::warn("the keys of an issuer cannot be read: {}", trouble);
    if (keys.ok() && (keys_ == nullptr || !trouble_.empty()))
      spdlog::info("the keys of {} have been read", settings->issuer);
    trouble_ = trouble;
    // Keys of a former issuer must not stay.
    if (!keys.ok() && settings->issuer != keys_issuer_) keys_ = nullptr;
    if (keys.ok()) keys_ = std::make_shared<const IssuerKeys>(*std::move(keys));
    if (keys_ != nullptr && trouble.empty()) keys_issuer_ = settings->issuer;
    was_read_ = true;
  }
  changed_.notify_all();
}

void OidcIssuer::run(const std::stop_token& stop) {
  Instant read_at = monotonic_now();
  read_keys(stop);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const Duration rest = read_at + options_.read_pause - monotonic_now();
    // Requests for a reading wait until the pause is over.
    changed_.wait_for(
        lock, stop, rest > Duration::zero() ? std::min(rest, kSettingsFreshFor) : kSettingsFreshFor,
        [&] { return is_wanted_ && rest <= Duration::zero(); });
    lock.unlock();
    read_settings();
    lock.lock();
    const Duration age = monotonic_now() - read_at;
    const bool is_due = is_wanted_ || keys_ == nullptr || !trouble_.empty() || age >= kKeysFreshFor;
    if (stop.stop_requested() || !is_due || age < options_.read_pause) continue;
    lock.unlock();
    read_at = monotonic_now();
    read_keys(stop);
    lock.lock();
  }
}

}  // namespace muster::coordinator

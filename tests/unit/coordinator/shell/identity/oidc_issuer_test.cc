#include "coordinator/shell/identity/oidc_issuer.h"

#include <gmock/gmock.h>

#include <map>
#include <mutex>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "daemon/https_get.h"
#include "tests/unit/coordinator/shell/identity/test_issuer.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kIssuerNow = 1'800'000'000;
constexpr char kIssuer[] = "https://sso.example.com/realms/ml";
constexpr char kDiscovery[] = "https://sso.example.com/realms/ml/.well-known/openid-configuration";
constexpr char kKeysUrl[] = "https://keys.example.com/set";
constexpr auto kIssuerPatienceInTest = std::chrono::seconds(60);

// Documents by their address; an absent one is unreachable.
class Site {
 public:
  void put(const std::string& url, std::string text) {
    const std::lock_guard lock(mutex_);
    texts_[url] = std::move(text);
  }
  std::string token_for(const std::string& url) {
    const std::lock_guard lock(mutex_);
    return tokens_[url];
  }
  OidcIssuer::Fetch fetch() {
    return [this](const daemon::HttpsGet& get) -> absl::StatusOr<std::string> {
      const std::lock_guard lock(mutex_);
      const std::string url = absl::StrCat("https://", get.host, get.path);
      tokens_[url] = get.token;
      const auto found = texts_.find(url);
      if (found == texts_.end()) return absl::UnavailableError("connecting: refused");
      return found->second;
    };
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::string> tokens_;  // the bearer tokens of the last requests
};

OidcSettings settings() {
  OidcSettings settings{.issuer = kIssuer, .audiences = {"muster"}};
  settings.roles = {{"*", Role::kViewer}};
  return settings;
}

std::string document(const std::string& issuer) {
  return nlohmann::json{{"issuer", issuer}, {"jwks_uri", kKeysUrl}}.dump();
}

std::string token_of(const TestIssuer& issuer) {
  return issuer.sign(
      {{"iss", kIssuer}, {"aud", "muster"}, {"sub", "ann"}, {"exp", kIssuerNow + 60}}, "RS256");
}

// Repeats a call that a thread's next reading lets succeed.
absl::StatusOr<OidcIssuer::Accepted> grant_in_time(OidcIssuer& checker, const std::string& token) {
  const Instant end = monotonic_now() + kIssuerPatienceInTest;
  while (true) {
    auto grant = checker.grant_of(token, kIssuerNow);
    if (grant.ok() || monotonic_now() > end) return grant;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(OidcIssuerTest, FindsTheKeysByTheDiscoveryDocument) {
  TestIssuer issuer;
  Site site;
  site.put(kDiscovery, document(kIssuer));
  site.put(kKeysUrl, issuer.key_set());
  OidcIssuer checker(settings(), {.fetch = site.fetch()});
  ASSERT_TRUE(checker.wait_for_keys(kIssuerPatienceInTest));
  const auto grant = checker.grant_of(token_of(issuer), kIssuerNow);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->grant.caller.name, "ann");
  EXPECT_TRUE(checker.still_accepts(grant->acceptance));
  EXPECT_THAT(checker.grant_of(token_of(issuer), kIssuerNow + 3600).status().message(),
              HasSubstr("it expired"));
}

TEST(OidcIssuerTest, ADocumentOfAnotherIssuerIsNotUsed) {
  TestIssuer issuer;
  Site site;
  site.put(kDiscovery, document("https://sso.example.com/realms/other"));
  site.put(kKeysUrl, issuer.key_set());
  OidcIssuer checker(settings(), {.fetch = site.fetch()});
  EXPECT_FALSE(checker.wait_for_keys(kIssuerPatienceInTest));
  EXPECT_THAT(checker.grant_of(token_of(issuer), kIssuerNow).status().message(),
              HasSubstr("could not be read yet"));
}

TEST(OidcIssuerTest, AnIssuerThatAppearsLaterIsRead) {
  TestIssuer issuer;
  Site site;
  OidcIssuer checker(settings(),
                     {.fetch = site.fetch(), .read_pause = std::chrono::milliseconds(1)});
  EXPECT_FALSE(checker.wait_for_keys(kIssuerPatienceInTest));
  site.put(kDiscovery, document(kIssuer));
  site.put(kKeysUrl, issuer.key_set());
  EXPECT_TRUE(grant_in_time(checker, token_of(issuer)).ok());
}

TEST(OidcIssuerTest, ATokenOfAnUnknownKeyCausesAReading) {
  TestIssuer issuer;
  TestIssuer next("next");
  Site site;
  site.put(kDiscovery, document(kIssuer));
  site.put(kKeysUrl, issuer.key_set());
  OidcIssuer checker(settings(),
                     {.fetch = site.fetch(), .read_pause = std::chrono::milliseconds(1)});
  ASSERT_TRUE(checker.wait_for_keys(kIssuerPatienceInTest));
  const auto before = checker.grant_of(token_of(issuer), kIssuerNow);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(checker.grant_of(token_of(next), kIssuerNow).status().message(),
              HasSubstr("its issuer has no key next-rsa for RS256"));
  site.put(kKeysUrl, next.key_set());
  EXPECT_TRUE(grant_in_time(checker, token_of(next)).ok());
  EXPECT_FALSE(checker.grant_of(token_of(issuer), kIssuerNow).ok());
  EXPECT_FALSE(checker.still_accepts(before->acceptance)) << "the issuer has withdrawn the key";
}

TEST(OidcIssuerTest, TheTokenOfTheDocumentsIsSentToTheIssuersServerAlone) {
  TestIssuer issuer;
  Site site;
  TempFolder folder;
  write_file(folder.file("token"), "secret-of-this-pod\n");
  OidcSettings own = settings();
  own.token_file = folder.file("token");
  site.put(kDiscovery, document(kIssuer));
  site.put(kKeysUrl, issuer.key_set());
  OidcIssuer checker(own, {.fetch = site.fetch()});
  ASSERT_TRUE(checker.wait_for_keys(kIssuerPatienceInTest));
  EXPECT_EQ(site.token_for(kDiscovery), "secret-of-this-pod");
  EXPECT_EQ(site.token_for(kKeysUrl), "");
}

TEST(OidcIssuerTest, ChangedSettingsApplyToTokensThatWereAccepted) {
  TestIssuer issuer;
  Site site;
  TempFolder folder;
  nlohmann::json object = {
      {"issuer", kIssuer}, {"audience", "muster"}, {"roles", {{"*", "viewer"}}}};
  write_file(folder.file("oidc.json"), object.dump());
  site.put(kDiscovery, document(kIssuer));
  site.put(kKeysUrl, issuer.key_set());
  OidcIssuer checker(*read_oidc_settings(folder.file("oidc.json")),
                     {.path = folder.file("oidc.json"),
                      .fetch = site.fetch(),
                      .read_pause = std::chrono::milliseconds(1)});
  ASSERT_TRUE(checker.wait_for_keys(kIssuerPatienceInTest));
  const auto grant = checker.grant_of(token_of(issuer), kIssuerNow);
  ASSERT_TRUE(grant.ok()) << grant.status();
  object["denied_users"] = "ann";
  write_file(folder.file("oidc.json"), object.dump());
  const Instant end = monotonic_now() + kIssuerPatienceInTest;
  while (checker.still_accepts(grant->acceptance) && monotonic_now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(checker.still_accepts(grant->acceptance));
  EXPECT_THAT(checker.grant_of(token_of(issuer), kIssuerNow).status().message(),
              HasSubstr("ann is one of denied_users"));
}

// Its server accepts the connection and stays silent.
TEST(OidcIssuerTest, EndsWhileTheIssuerIsSilent) {
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor silent(context, {boost::asio::ip::make_address("127.0.0.1"), 0});
  OidcSettings own = settings();
  own.issuer = absl::StrCat("https://127.0.0.1:", silent.local_endpoint().port());
  const Instant begin = monotonic_now();
  { OidcIssuer checker(own, {}); }
  EXPECT_LT(monotonic_now() - begin, std::chrono::seconds(9)) << "the budget of a request is 10 s";
}

TEST(HttpsUrl, HasHostPortAndPath) {
  const auto parsed = [](std::string_view url) {
    const auto get = daemon::parse_https_url(url);
    return get.ok() ? absl::StrCat(get->host, " ", get->port, " ", get->path)
                    : std::string(get.status().message());
  };
  EXPECT_EQ(parsed("https://a.example"), "a.example 443 /");
  EXPECT_EQ(parsed("https://a.example:8443/x/y?z=1"), "a.example 8443 /x/y?z=1");
  EXPECT_EQ(parsed("https://a.example?z=1"), "a.example 443 /?z=1");
  EXPECT_EQ(parsed("https://[::1]:8443/x"), "::1 8443 /x");
  EXPECT_EQ(parsed("https://[::1]/x"), "::1 443 /x");
  EXPECT_THAT(parsed("http://a"), HasSubstr("must begin with https://"));
  EXPECT_THAT(parsed("https://"), HasSubstr("no host"));
  EXPECT_THAT(parsed("https://a:0/"), HasSubstr("port"));
  EXPECT_THAT(parsed("https://a:x/"), HasSubstr("port"));
  EXPECT_THAT(parsed("https://u:p@a/"), HasSubstr("user"));
  EXPECT_THAT(parsed("https://a/ b"), HasSubstr("space"));
  EXPECT_THAT(parsed("https://a/\r\nX: y"), HasSubstr("control"));
}

}  // namespace
}  // namespace muster::coordinator

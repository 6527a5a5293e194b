#include "coordinator/shell/identity/oidc_settings.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNow = 1'800'000'000;

class OidcSettingsTest : public testing::Test {
 protected:
  absl::StatusOr<OidcSettings> read(const nlohmann::json& object) {
    write_file(folder_.file("oidc.json"), object.dump());
    return read_oidc_settings(folder_.file("oidc.json"));
  }
  std::string refusal(const char* key, const nlohmann::json& value) {
    nlohmann::json object = object_;
    object[key] = value;
    return std::string(read(object).status().message());
  }
  absl::StatusOr<TokenGrant> grant(const nlohmann::json& changes) {
    nlohmann::json claims = claims_;
    if (!changes.is_null()) claims.merge_patch(changes);
    const auto settings = read(object_);
    EXPECT_TRUE(settings.ok()) << settings.status();
    return grant_of_claims(*settings, claims, kNow);
  }
  std::string refused_claims(const nlohmann::json& changes) {
    const auto refused = grant(changes);
    EXPECT_TRUE(absl::IsUnauthenticated(refused.status())) << changes.dump();
    return std::string(refused.status().message());
  }

  TempFolder folder_;
  nlohmann::json object_ = {
      {"issuer", "https://sso.example.com/realms/ml"},
      {"audience", {"muster", "muster-prod"}},
      {"user_claim", "email"},
      {"user_domain", "example.com"},
      {"roles", {{"users", "submitter"}, {"admins", "admin"}, {"nodes", "worker"}}},
      {"teams", {{"grp-vision", "vision"}, {"grp-speech", "speech"}}},
      {"max_priority", {{"users", 10}, {"grp-vision", 20}}},
      {"nodes", {{"nodes", {"gpu-*", "cpu1"}}}}};
  nlohmann::json claims_ = {{"iss", "https://sso.example.com/realms/ml"},
                            {"aud", "muster"},
                            {"exp", kNow + 600},
                            {"email", "ann@example.com"},
                            {"groups", {"users", "grp-vision", "others"}}};
};

TEST_F(OidcSettingsTest, GroupsGiveTheHighestRoleTeamsAndPriority) {
  const auto user = grant({});
  ASSERT_TRUE(user.ok()) << user.status();
  EXPECT_EQ(*user, (TokenGrant{.role = Role::kSubmitter,
                               .caller = {.name = "ann", .teams = {"vision"}, .priority_max = 20},
                               .expires_unix_s = kNow + 630}));
  const auto admin = grant({{"groups", {"admins", "users"}}});
  ASSERT_TRUE(admin.ok()) << admin.status();
  EXPECT_EQ(admin->role, Role::kAdmin);
  EXPECT_TRUE(admin->caller.is_admin);
  const auto worker = grant({{"groups", "nodes"}});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->role, Role::kWorker);
  EXPECT_THAT(worker->nodes, ElementsAre("gpu-*", "cpu1"));
}

TEST_F(OidcSettingsTest, AGroupOfEverybodyGivesARole) {
  EXPECT_THAT(refused_claims({{"groups", nullptr}}),
              HasSubstr("ann is in no group that has a role"));
  object_["roles"]["*"] = "viewer";
  EXPECT_EQ(grant({{"groups", nullptr}})->role, Role::kViewer);
  EXPECT_EQ(grant({})->role, Role::kSubmitter);
}

TEST_F(OidcSettingsTest, ClaimsOfOthersAndOtherTimesAreRefused) {
  EXPECT_THAT(refused_claims({{"iss", "https://sso.example.com/realms/ml/"}}),
              HasSubstr("its issuer is https://sso.example.com/realms/ml/, not https://sso"));
  EXPECT_THAT(refused_claims({{"iss", {"https://sso.example.com/realms/ml"}}}),
              HasSubstr("its issuer is missing"));
  EXPECT_THAT(refused_claims({{"iss", nullptr}}), HasSubstr("its issuer is missing"));
  EXPECT_THAT(refused_claims({{"aud", "other"}}), HasSubstr("its audience is other, not muster"));
  EXPECT_THAT(refused_claims({{"aud", nullptr}}), HasSubstr("its audience is missing"));
  EXPECT_TRUE(grant({{"aud", {"other", "muster-prod"}}}).ok());
  EXPECT_THAT(refused_claims({{"exp", kNow - 30}}), HasSubstr("it expired 30 s ago"));
  EXPECT_TRUE(grant({{"exp", kNow - 29}}).ok());
  for (const nlohmann::json& time :
       {nlohmann::json(nullptr), nlohmann::json("1900000000"), nlohmann::json(-1),
        nlohmann::json(1e300), nlohmann::json::array({kNow + 9})})
    EXPECT_THAT(refused_claims({{"exp", time}}), HasSubstr("it has no time exp")) << time.dump();
  EXPECT_THAT(refused_claims({{"nbf", kNow + 31}}), HasSubstr("it is not valid yet"));
  EXPECT_THAT(refused_claims({{"nbf", "soon"}}), HasSubstr("it is not valid yet"));
  EXPECT_TRUE(grant({{"nbf", kNow + 30}}).ok());
}

TEST_F(OidcSettingsTest, NamesOfOtherDomainsAndUnfitNamesAreRefused) {
  EXPECT_THAT(refused_claims({{"email", "ann@evil.com"}}), HasSubstr("is not of the domain"));
  EXPECT_THAT(refused_claims({{"email", "ann"}}), HasSubstr("is not of the domain"));
  EXPECT_THAT(refused_claims({{"email", "@example.com"}}), HasSubstr("is no name"));
  EXPECT_THAT(refused_claims({{"email", "a b@example.com"}}), HasSubstr("is no name"));
  EXPECT_THAT(refused_claims({{"email", "a\x1b[31m@example.com"}}), HasSubstr("is no name"));
  EXPECT_THAT(refused_claims({{"email", {"ann@example.com", "bob@example.com"}}}),
              HasSubstr("it has no claim email with a name"));
  EXPECT_THAT(refused_claims({{"email", nullptr}}), HasSubstr("it has no claim email"));
}

TEST_F(OidcSettingsTest, AnUnverifiedAddressIsNoName) {
  EXPECT_TRUE(grant({{"email_verified", true}}).ok());
  for (const nlohmann::json& value : {nlohmann::json(false), nlohmann::json("true")})
    EXPECT_THAT(refused_claims({{"email_verified", value}}),
                HasSubstr("has not verified the address"));
  object_["denied_users"] = {"ann"};
  EXPECT_THAT(refused_claims({}), HasSubstr("ann@example.com is one of denied_users"));
}

TEST_F(OidcSettingsTest, AWorkerIsNoPersonAndHasNodes) {
  object_["roles"]["*"] = "viewer";
  EXPECT_EQ(grant({{"groups", "nodes"}})->role, Role::kWorker) << "its own group counts";
  EXPECT_THAT(refused_claims({{"groups", {"nodes", "admins"}}}),
              HasSubstr("a worker and a person"));
  object_["roles"]["other"] = "worker";
  EXPECT_THAT(refused_claims({{"groups", "other"}}),
              HasSubstr("no group of the worker has `nodes`"));
  EXPECT_THAT(refusal("nodes", {{"users", "gpu-*"}}),
              HasSubstr("nodes.users: the group has not the role worker"));
  EXPECT_THAT(refusal("nodes", {{"nodes", "a b"}}), HasSubstr("nodes.nodes: patterns of names"));
}

TEST_F(OidcSettingsTest, ErrorsNameTheKeyTheValueAndTheForm) {
  EXPECT_THAT(refusal("issuer", "http://sso.example.com"),
              HasSubstr("issuer: http://sso.example.com: it must begin with https://"));
  EXPECT_THAT(refusal("issuer", 7), HasSubstr("issuer: 7 is no text"));
  EXPECT_THAT(refusal("audience", nlohmann::json::array()),
              HasSubstr("audience: the list is empty"));
  EXPECT_THAT(refusal("jwks_uri", "https://a@b/"),
              HasSubstr("jwks_uri: https://a@b/: it must not have a user"));
  EXPECT_THAT(
      refusal("roles", {{"users", "boss"}}),
      HasSubstr("roles.users: \"boss\" is no role: worker, viewer, submitter and admin are"));
  EXPECT_THAT(refusal("roles", "submitter"),
              HasSubstr("roles: \"submitter\" is no object by group"));
  EXPECT_THAT(refusal("teams", {{"g", "a,b"}}), HasSubstr("teams.g: \"a,b\" is no team"));
  EXPECT_THAT(refusal("max_priority", {{"g", 1e9}}),
              HasSubstr("max_priority.g: 1000000000.0 is no"));
  EXPECT_THAT(refusal("nodes", {{"nodes", {1}}}), HasSubstr("nodes.nodes: 1 is no text"));
  EXPECT_THAT(refusal("isuer", "x"), HasSubstr("isuer: there is no such key"));
  EXPECT_THAT(refusal("ca_file", folder_.file("none.pem")), HasSubstr("none.pem"));
  object_.erase("audience");
  EXPECT_THAT(refusal("user_claim", "sub"), HasSubstr("audience: it is missing"));
  write_file(folder_.file("oidc.json"), "[1]");
  EXPECT_THAT(read_oidc_settings(folder_.file("oidc.json")).status().message(),
              HasSubstr("it is no JSON object"));
}

}  // namespace
}  // namespace muster::coordinator

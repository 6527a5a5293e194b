#include "coordinator/shell/identity/tokens.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/grpc/call_guard.h"
#include "tests/unit/coordinator/shell/identity/test_issuer.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOne = "one-0123456789abcdef";
constexpr const char* kTwo = "two-0123456789abcdef";

std::optional<Role> role_of(Tokens& tokens, std::string_view token, Instant now) {
  const auto grant = tokens.grant_of(token, now);
  return grant.ok() ? std::optional(grant->role) : std::nullopt;
}

class TokensTest : public testing::Test {
 protected:
  std::string refusal() const {
    return std::string(TokenTable::read(folder_.path()).status().message());
  }

  TempFolder folder_;
};

TEST_F(TokensTest, AFileIsARole) {
  write_file(folder_.file("worker"), std::string(kOne) + "\n");
  write_file(folder_.file("admin"), kTwo);
  write_file(folder_.file("..data"), "Kubernetes' own");
  const auto table = TokenTable::read(folder_.path());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->grant_of(daemon::token_digest(kOne))->role, Role::kWorker);
  EXPECT_EQ(table->grant_of(daemon::token_digest(kTwo))->role, Role::kAdmin);
  EXPECT_EQ(table->grant_of(daemon::token_digest("three-0123456789abcdef")), std::nullopt);
  EXPECT_EQ(table->grant_of(daemon::token_digest("")), std::nullopt);
}

TEST_F(TokensTest, EmptyAndOversizedFoldersAreRefused) {
  EXPECT_THAT(refusal(), HasSubstr("there are no tokens"));
  write_file(folder_.file("admins"), kOne);
  EXPECT_THAT(refusal(), HasSubstr("admins is no role"));
  std::filesystem::remove(folder_.file("admins"));
  write_file(folder_.file("admin"), kOne);
  write_file(folder_.file("viewer"), kOne);
  EXPECT_THAT(refusal(), HasSubstr("viewer and admin have a token in common"));
  std::filesystem::remove_all(folder_.path());
  EXPECT_THAT(refusal(), HasSubstr("--token-dir="));
  std::filesystem::create_directory(folder_.path());
}

TEST_F(TokensTest, AreReadAgainAfterASecondAndRetainedAfterAMistake) {
  write_file(folder_.file("worker"), kOne);
  auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const Instant now = monotonic_now() + std::chrono::hours(1);
  write_file(folder_.file("worker"), std::string(kOne) + "\n" + kTwo);
  EXPECT_EQ(role_of(**tokens, kTwo, now), Role::kWorker);
  EXPECT_EQ(role_of(**tokens, kOne, now), Role::kWorker);

  write_file(folder_.file("worker"), kTwo);
  EXPECT_EQ(role_of(**tokens, kOne, now + std::chrono::milliseconds(999)), Role::kWorker);
  EXPECT_EQ(role_of(**tokens, kOne, now + std::chrono::seconds(1)), std::nullopt) << "revoked";

  write_file(folder_.file("worker"), "short");
  EXPECT_EQ(role_of(**tokens, kTwo, now + std::chrono::seconds(2)), Role::kWorker);
  write_file(folder_.file("worker"), kOne);
  EXPECT_EQ(role_of(**tokens, kOne, now + std::chrono::seconds(3)), Role::kWorker);

  write_file(folder_.file("admin"), kTwo);
  write_file(folder_.file("worker"), "");
  EXPECT_EQ(role_of(**tokens, kOne, now + std::chrono::seconds(4)), std::nullopt)
      << "an empty file revokes all tokens of its role";
  EXPECT_EQ(role_of(**tokens, kTwo, now + std::chrono::seconds(4)), Role::kAdmin);
}

TEST_F(TokensTest, AMistakeInOneFileDoesNotKeepAnothersTokens) {
  write_file(folder_.file("worker"), kOne);
  write_file(folder_.file("submitter"), std::string(kTwo) + "\n" + "three-0123456789abcdef");
  auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  Instant now = monotonic_now() + std::chrono::hours(1);
  write_file(folder_.file("worker"), "short");
  write_file(folder_.file("submitter"), kTwo);
  EXPECT_EQ(role_of(**tokens, "three-0123456789abcdef", now), std::nullopt) << "revoked";
  EXPECT_EQ(role_of(**tokens, kTwo, now), Role::kSubmitter);
  EXPECT_EQ(role_of(**tokens, kOne, now), Role::kWorker) << "the previous tokens stay valid";

  write_file(folder_.file("strange"), "x");
  std::filesystem::remove(folder_.file("submitter"));
  now += std::chrono::seconds(1);
  EXPECT_EQ(role_of(**tokens, kTwo, now), std::nullopt);
  std::filesystem::remove(folder_.file("worker"));
  now += std::chrono::seconds(1);
  EXPECT_EQ(role_of(**tokens, kOne, now), Role::kWorker)
      << "a folder without any file is a mistake";
}

TEST_F(TokensTest, ATokenOfTwoRolesGetsTheLesserOne) {
  write_file(folder_.file("viewer"), kOne);
  auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  write_file(folder_.file("admin"), kOne);
  EXPECT_EQ(role_of(**tokens, kOne, monotonic_now() + std::chrono::hours(1)), Role::kViewer);
}

TEST_F(TokensTest, ALineNamesAPersonTeamsAndLimits) {
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(daemon::token_digest(kTwo).data()),
                        daemon::TokenDigest().size()));
  write_file(folder_.file("submitter"),
             absl::StrCat(kOne, "  user=alice\tteams=vision,speech max_priority=-5\nsha256:", hex,
                          " user=bob@example.org\n"));
  write_file(folder_.file("admin"), "three-0123456789abcdef user=root\n");
  const auto table = TokenTable::read(folder_.path());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->grant_of(daemon::token_digest(kOne)), (TokenGrant{Role::kSubmitter,
                                                                     {.name = "alice",
                                                                      .teams = {"vision", "speech"},
                                                                      .is_admin = false,
                                                                      .priority_max = -5}}));
  EXPECT_EQ(table->grant_of(daemon::token_digest(kTwo)),
            (TokenGrant{Role::kSubmitter, {.name = "bob@example.org", .is_admin = false}}));
  EXPECT_EQ(table->grant_of(daemon::token_digest("sha256:" + hex)), std::nullopt)
      << "who reads the file has no token";
  EXPECT_TRUE(table->grant_of(daemon::token_digest("three-0123456789abcdef"))->caller.is_admin);
}

TEST_F(TokensTest, WordsAfterATokenAreChecked) {
  for (const auto& [words, problem] : {std::pair{"user=", "user must have 1 to"},
                                       {"user=a,b", "user must have 1 to"},
                                       {"teams=vision", "teams need user=NAME"},
                                       {"user=a teams=x,,y", "teams must be names"},
                                       {"max_priority=1000001", "max_priority must be a number"},
                                       {"max_priority=high", "max_priority must be a number"},
                                       {"another-0123456789abcdef", "only user=NAME"}}) {
    write_file(folder_.file("viewer"), absl::StrCat("# people\n", kOne, " ", words));
    EXPECT_THAT(refusal(), AllOf(HasSubstr("/viewer: line 2: "), HasSubstr(problem),
                                 Not(HasSubstr("0123456789abcdef"))));
  }
  write_file(folder_.file("viewer"), "sha256:0123456789abcdef user=a");
  EXPECT_THAT(refusal(), HasSubstr("64 hexadecimal digits"));
  std::filesystem::remove(folder_.file("viewer"));
  write_file(folder_.file("worker"), absl::StrCat(kOne, " user=alice"));
  EXPECT_THAT(refusal(),
              HasSubstr("only nodes=PATTERN,PATTERN and expires=TIME may follow a worker's token"));
  std::filesystem::remove(folder_.file("worker"));
  write_file(folder_.file("submitter"), absl::StrCat(kOne, " user=a\n", kOne, " user=b"));
  EXPECT_THAT(refusal(), HasSubstr("two lines have a token in common"));
}

TEST(CallGuard, EachMethodHasItsRole) {
  EXPECT_EQ(role_needed("/grpc.health.v1.Health/Check"), std::nullopt);
  EXPECT_EQ(role_needed("/muster.v1.Fleet/Connect"), Role::kWorker);
  EXPECT_EQ(role_needed("/muster.v1.Muster/GetJob"), Role::kViewer);
  EXPECT_EQ(role_needed("/muster.v1.Muster/SubmitJob"), Role::kSubmitter);
  EXPECT_EQ(role_needed("/muster.v1.Muster/AdmitWorker"), Role::kAdmin);
  EXPECT_EQ(role_needed("/muster.v1.Muster/CheckNodes"), Role::kAdmin);
  EXPECT_EQ(role_needed("/muster.v1.Muster/GetNodeSweep"), Role::kViewer);
  EXPECT_EQ(role_needed("/muster.v1.Muster/OfALaterVersion"), Role::kAdmin);
  EXPECT_EQ(role_needed("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            Role::kViewer);
  EXPECT_EQ(role_needed(""), Role::kAdmin);
}

TEST(CallGuard, RolesContainEachOtherButForTheWorkers) {
  EXPECT_TRUE(may(Role::kAdmin, Role::kViewer));
  EXPECT_TRUE(may(Role::kSubmitter, Role::kSubmitter));
  EXPECT_FALSE(may(Role::kViewer, Role::kSubmitter));
  EXPECT_FALSE(may(Role::kSubmitter, Role::kAdmin));
  EXPECT_TRUE(may(Role::kWorker, Role::kWorker));
  EXPECT_FALSE(may(Role::kAdmin, Role::kWorker)) << "a worker must not use a person's token";
  EXPECT_FALSE(may(Role::kWorker, Role::kViewer)) << "a rank may read its worker's token";
}

TEST_F(TokensTest, ATokenExpires) {
  write_file(folder_.file("submitter"),
             absl::StrCat(kOne, " user=ann expires=2020-01-01T00:00:00Z\n", kTwo,
                          " expires=2200-01-01T00:00:00+01:00\n"));
  const auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const Instant now = monotonic_now();
  EXPECT_THAT((*tokens)->grant_of(kOne, now).status().message(),
              HasSubstr("the token has expired"));
  EXPECT_EQ((*tokens)->grant_of(daemon::token_digest(kOne), now), std::nullopt);
  EXPECT_EQ(role_of(**tokens, kTwo, now), Role::kSubmitter);
  write_file(folder_.file("submitter"), absl::StrCat(kOne, " expires=tomorrow"));
  EXPECT_THAT(refusal(), HasSubstr("line 1: expires must be a time such as 2026-12-31T18:00:00Z"));
}

TEST_F(TokensTest, AWorkersTokenMayNameItsNodes) {
  write_file(folder_.file("worker"), absl::StrCat(kOne, " nodes=gpu-*,cpu1\n", kTwo));
  const auto table = TokenTable::read(folder_.path());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->grant_of(daemon::token_digest(kOne))->nodes,
            (std::vector<std::string>{"gpu-*", "cpu1"}));
  EXPECT_TRUE(table->grant_of(daemon::token_digest(kTwo))->nodes.empty());
  write_file(folder_.file("worker"), absl::StrCat(kOne, " nodes=a,,b"));
  EXPECT_THAT(refusal(), HasSubstr("nodes must be patterns of names"));
  write_file(folder_.file("worker"), kOne);
  write_file(folder_.file("viewer"), absl::StrCat(kTwo, " nodes=gpu-*"));
  EXPECT_THAT(refusal(), HasSubstr("may follow a token"));
}

TEST_F(TokensTest, TokensOfAnIssuerAreRememberedUntilTheyExpire) {
  TestIssuer issuer;
  OidcSettings settings{.issuer = "https://sso.example.com", .audiences = {"muster"}};
  settings.jwks_uri = "https://sso.example.com/keys";
  settings.roles = {{"*", Role::kViewer}};
  OidcIssuers issuers;
  issuers.push_back(std::make_unique<OidcIssuer>(
      settings, OidcIssuer::Options{.fetch = [&](const auto&) { return issuer.key_set(); }}));
  ASSERT_TRUE(issuers.front()->wait_for_keys(std::chrono::seconds(60)));
  write_file(folder_.file("admin"), kOne);
  const auto tokens = Tokens::open(folder_.path(), std::move(issuers));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const auto sign = [&](int64_t expires) {
    return issuer.sign(
        {{"iss", "https://sso.example.com"}, {"aud", "muster"}, {"sub", "ann"}, {"exp", expires}},
        "ES256");
  };
  const Instant now = monotonic_now();
  const int64_t unix_s = wall_clock_unix_ns() / 1'000'000'000;
  const std::string token = sign(unix_s + 3600);
  EXPECT_EQ((*tokens)->grant_of(daemon::token_digest(token), now), std::nullopt);
  const auto grant = (*tokens)->grant_of(token, now);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->caller.name, "ann");
  EXPECT_EQ((*tokens)->grant_of(daemon::token_digest(token), now), *grant);
  EXPECT_EQ(role_of(**tokens, kOne, now), Role::kAdmin);
  EXPECT_THAT((*tokens)->grant_of(sign(unix_s - 60), now).status().message(),
              HasSubstr("it expired"));
  EXPECT_THAT((*tokens)->grant_of(kTwo, now).status().message(), HasSubstr("has no such token"));
}

TEST(SeenTokensTest, APersonsTokensReplaceOnlyTheirOwn) {
  TestIssuer issuer;
  OidcSettings settings{.issuer = "https://sso.example.com", .audiences = {"muster"}};
  settings.jwks_uri = "https://sso.example.com/keys";
  settings.roles = {{"*", Role::kViewer}};
  OidcIssuer checker(settings, {.fetch = [&](const auto&) { return issuer.key_set(); }});
  ASSERT_TRUE(checker.wait_for_keys(std::chrono::seconds(60)));
  const auto accepted = checker.grant_of(
      issuer.sign(
          {{"iss", "https://sso.example.com"}, {"aud", "muster"}, {"sub", "ann"}, {"exp", 100}},
          "ES256"),
      50);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  SeenTokens seen;
  const auto add = [&](const std::string& person, int64_t expires, const std::string& token) {
    OidcIssuer::Accepted one = *accepted;
    one.grant.caller.name = person;
    one.grant.expires_unix_s = expires;
    seen.add(daemon::token_digest(token), {one, &checker});
  };
  add("ann", 10, "ann's");
  for (int i = 0; i < 100; ++i) add("eve", 1000 + i, absl::StrCat("eve's ", i));
  EXPECT_TRUE(seen.find(daemon::token_digest("ann's")));
  EXPECT_FALSE(seen.find(daemon::token_digest("eve's 0")));
  size_t remembered = 0;
  for (int i = 0; i < 100; ++i)
    remembered += seen.find(daemon::token_digest(absl::StrCat("eve's ", i))).has_value() ? 1 : 0;
  EXPECT_EQ(remembered, SeenTokens::kPerPersonMax);
}

}  // namespace
}  // namespace muster::coordinator

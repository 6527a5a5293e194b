#include "coordinator/shell/grpc/tokens.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "coordinator/shell/grpc/call_guard.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOne = "one-0123456789abcdef";
constexpr const char* kTwo = "two-0123456789abcdef";

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
  EXPECT_EQ(table->role_of(daemon::token_digest(kOne)), Role::kWorker);
  EXPECT_EQ(table->role_of(daemon::token_digest(kTwo)), Role::kAdmin);
  EXPECT_EQ(table->role_of(daemon::token_digest("three-0123456789abcdef")), std::nullopt);
  EXPECT_EQ(table->role_of(daemon::token_digest("")), std::nullopt);
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
  EXPECT_EQ((*tokens)->role_of(kTwo, now), Role::kWorker);
  EXPECT_EQ((*tokens)->role_of(kOne, now), Role::kWorker);

  write_file(folder_.file("worker"), kTwo);
  EXPECT_EQ((*tokens)->role_of(kOne, now + std::chrono::milliseconds(999)), Role::kWorker);
  EXPECT_EQ((*tokens)->role_of(kOne, now + std::chrono::seconds(1)), std::nullopt) << "revoked";

  write_file(folder_.file("worker"), "short");
  EXPECT_EQ((*tokens)->role_of(kTwo, now + std::chrono::seconds(2)), Role::kWorker);
  write_file(folder_.file("worker"), kOne);
  EXPECT_EQ((*tokens)->role_of(kOne, now + std::chrono::seconds(3)), Role::kWorker);

  write_file(folder_.file("admin"), kTwo);
  write_file(folder_.file("worker"), "");
  EXPECT_EQ((*tokens)->role_of(kOne, now + std::chrono::seconds(4)), std::nullopt)
      << "an empty file revokes all tokens of its role";
  EXPECT_EQ((*tokens)->role_of(kTwo, now + std::chrono::seconds(4)), Role::kAdmin);
}

TEST_F(TokensTest, AMistakeInOneFileDoesNotKeepAnothersTokens) {
  write_file(folder_.file("worker"), kOne);
  write_file(folder_.file("submitter"), std::string(kTwo) + "\n" + "three-0123456789abcdef");
  auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  Instant now = monotonic_now() + std::chrono::hours(1);
  write_file(folder_.file("worker"), "short");
  write_file(folder_.file("submitter"), kTwo);
  EXPECT_EQ((*tokens)->role_of("three-0123456789abcdef", now), std::nullopt) << "revoked";
  EXPECT_EQ((*tokens)->role_of(kTwo, now), Role::kSubmitter);
  EXPECT_EQ((*tokens)->role_of(kOne, now), Role::kWorker) << "the previous tokens stay valid";

  write_file(folder_.file("strange"), "x");
  std::filesystem::remove(folder_.file("submitter"));
  now += std::chrono::seconds(1);
  EXPECT_EQ((*tokens)->role_of(kTwo, now), std::nullopt);
  std::filesystem::remove(folder_.file("worker"));
  now += std::chrono::seconds(1);
  EXPECT_EQ((*tokens)->role_of(kOne, now), Role::kWorker)
      << "a folder without any file is a mistake";
}

TEST_F(TokensTest, ATokenOfTwoRolesGetsTheLesserOne) {
  write_file(folder_.file("viewer"), kOne);
  auto tokens = Tokens::open(folder_.path());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  write_file(folder_.file("admin"), kOne);
  EXPECT_EQ((*tokens)->role_of(kOne, monotonic_now() + std::chrono::hours(1)), Role::kViewer);
}

TEST(CallGuard, EachMethodHasItsRole) {
  EXPECT_EQ(role_needed("/grpc.health.v1.Health/Check"), std::nullopt);
  EXPECT_EQ(role_needed("/muster.v1.Fleet/Connect"), Role::kWorker);
  EXPECT_EQ(role_needed("/muster.v1.Muster/GetJob"), Role::kViewer);
  EXPECT_EQ(role_needed("/muster.v1.Muster/SubmitJob"), Role::kSubmitter);
  EXPECT_EQ(role_needed("/muster.v1.Muster/AdmitWorker"), Role::kAdmin);
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

}  // namespace
}  // namespace muster::coordinator

// The owners of jobs, and the requests that other callers may make.
#include "coordinator/core/records/caller.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

const Caller kAlice{.name = "alice", .teams = {"vision", "speech"}, .is_admin = false};
const Caller kBob{.name = "bob", .teams = {"speech"}, .is_admin = false};
const Caller kUnnamed{};
const Caller kAdmin{.name = "root", .is_admin = true};

bool may(const Caller& caller, const JobOwner& owner) {
  return check_access(caller, owner, JobId(7), "cancel it").ok();
}

TEST(CheckAccess, AJobBelongsToItsOwnerAndItsTeam) {
  EXPECT_TRUE(may(kAlice, {"alice", ""}));
  EXPECT_FALSE(may(kBob, {"alice", ""}));
  EXPECT_FALSE(may(kBob, {"alice", "vision"}));
  EXPECT_TRUE(may(kBob, {"alice", "speech"}));
  EXPECT_FALSE(may(kUnnamed, {"alice", "speech"}));
  EXPECT_TRUE(may(kAdmin, {"alice", ""}));
  EXPECT_TRUE(may(unrestricted_caller(), {"alice", ""}));
}

TEST(CheckAccess, SomeRequestsAreTheOwnersAlone) {
  const auto may_update = [](const Caller& caller, const JobOwner& owner) {
    return check_access(caller, owner, JobId(7), "update it", Access::kOwner);
  };
  EXPECT_TRUE(may_update(kAlice, {"alice", "speech"}).ok());
  EXPECT_TRUE(may_update(kAdmin, {"alice", "speech"}).ok());
  EXPECT_TRUE(may_update(kUnnamed, {"", "speech"}).ok());
  EXPECT_EQ(may_update(kBob, {"alice", "speech"}).message(),
            "job 7 belongs to alice: only alice and admins may update it, and this token is bob's");
}

TEST(CheckAccess, AJobWithoutAnOwnerBelongsToAll) {
  EXPECT_TRUE(may(kUnnamed, {}));
  EXPECT_TRUE(may(kBob, {"", "vision"}));
}

TEST(CheckAccess, TheErrorNamesWhoMay) {
  const absl::Status status = check_access(kBob, {"alice", "vision"}, JobId(7), "read its output");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "job 7 belongs to alice: only alice, members of vision and admins may read its "
            "output, and this token is bob's");
}

TEST(SetOwner, TheTokenDecidesAndNotTheClient) {
  JobSpec spec;
  spec.user = spec.owner = "mallory";
  ASSERT_TRUE(set_owner(kAlice, spec).ok());
  EXPECT_EQ(spec.owner, "alice");
  EXPECT_EQ(spec.user, "alice");
  EXPECT_EQ(spec.team, "vision");
  spec.team = "speech";
  ASSERT_TRUE(set_owner(kAlice, spec).ok());
  EXPECT_EQ(spec.team, "speech");

  spec = {};
  spec.user = spec.owner = "mallory";
  ASSERT_TRUE(set_owner(kUnnamed, spec).ok());
  EXPECT_EQ(spec.owner, "") << "a token without a person gives its jobs to all";
  EXPECT_EQ(spec.user, "mallory");
}

TEST(SetOwner, OthersTeamsAreRefused) {
  JobSpec spec;
  spec.team = "vision";
  absl::Status status = set_owner(kBob, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "team is vision: the teams of bob's token are speech; choose one of them, or omit "
            "--team");
  status = set_owner(kUnnamed, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(),
            "team is vision: this token names no person and has no teams; omit --team");
  EXPECT_TRUE(set_owner(kAdmin, spec).ok());
}

TEST(SetOwner, ThePriorityHasTheTokensLimit) {
  Caller caller = kAlice;
  caller.priority_max = 10;
  JobSpec spec;
  spec.priority = 10;
  EXPECT_TRUE(set_owner(caller, spec).ok());
  spec.priority = 11;
  const absl::Status status = set_owner(caller, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "priority is 11: this token is alice's, and permits at most 10");
}

}  // namespace
}  // namespace muster::coordinator
